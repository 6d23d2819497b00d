"""The environment, and what beats what."""

from __future__ import annotations

import re

import pytest
from pydantic import SecretStr

from pointsman.config.errors import ConfigError
from pointsman.config.loader import parse
from pointsman.config.model import GatewayConfig, Listen, SearchApi, State
from pointsman.config.settings import apply_overrides, apply_search_api_overrides, read_settings


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CONFIG", "CONFIG_DIR", "STATE_DIR", "HOST", "PORT", "DATABASE", "TOKEN", "REQUEST_KEY", "LOG_LEVEL"):
        monkeypatch.delenv(f"POINTSMAN_{name}", raising=False)


def test_the_command_line_beats_the_environment_which_beats_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    file = GatewayConfig(listen=Listen(host="file", port=1, allowed_hosts=("kept",)))
    assert apply_overrides(file, read_settings()) == file
    monkeypatch.setenv("POINTSMAN_HOST", "environment")
    monkeypatch.setenv("POINTSMAN_PORT", "2")
    assert apply_overrides(file, read_settings()).listen == Listen(host="environment", port=2, allowed_hosts=("kept",))
    assert apply_overrides(file, read_settings(), host="line", port=0).listen.host == "line"
    assert apply_overrides(file, read_settings(), host="line", port=0).listen.port == 0


def test_the_environments_request_key_seals_and_the_files_keys_still_open(monkeypatch: pytest.MonkeyPatch) -> None:
    new, old = SecretStr("n" * 32), SecretStr("o" * 32)
    monkeypatch.setenv("POINTSMAN_REQUEST_KEY", new.get_secret_value())
    state = apply_overrides(GatewayConfig(state=State(request_keys=(old, new))), read_settings()).state
    assert state.request_keys == (new, old)


def test_an_empty_variable_counts_as_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POINTSMAN_PORT", "")
    assert read_settings().port is None


def test_bad_values_are_told_all_at_once_and_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POINTSMAN_PORT", "http")
    monkeypatch.setenv("POINTSMAN_LOG_LEVEL", "Wraning")
    monkeypatch.setenv("POINTSMAN_REQUEST_KEY", "hunter2")
    with pytest.raises(ConfigError) as caught:
        read_settings()
    assert str(caught.value).splitlines() == [
        "environment: POINTSMAN_PORT: must be a whole number",
        "environment: POINTSMAN_REQUEST_KEY: has 7 bytes, but needs at least 32; try `openssl rand -hex 32`",
        "environment: POINTSMAN_LOG_LEVEL: must be `debug`, `info`, `warning` or `error` (did you mean `warning`?)",
    ]


def test_for_a_search_service_they_say_where_that_one_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    file = GatewayConfig(listen=Listen(port=1), search_api=SearchApi(listen=Listen(port=2, allowed_hosts=("kept",))))
    monkeypatch.setenv("POINTSMAN_HOST", "environment")
    found = apply_search_api_overrides(file, read_settings(), port=3)
    assert found.search_api == SearchApi(listen=Listen(host="environment", port=3, allowed_hosts=("kept",)))
    assert found.listen == Listen(port=1)
    assert apply_search_api_overrides(GatewayConfig(), read_settings()).search_api == SearchApi(
        listen=Listen(host="environment", port=3283)
    )


def test_a_search_service_that_names_only_its_host_keeps_its_own_port() -> None:
    assert SearchApi.model_validate({"listen": {"host": "::1"}}).listen == Listen(host="::1", port=3283)


def test_a_database_needs_keys_and_the_error_has_the_line_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POINTSMAN_DATABASE", "postgresql://me:hunter2@db.example/x")
    with pytest.raises(ConfigError) as failure:
        apply_overrides(GatewayConfig(), read_settings())
    text = str(failure.value)
    assert "state.request_keys: is required with `state.database`" in text
    assert "hunter2" not in text
    line = re.search(r'`(request_keys: \["[0-9a-f]{64}"\])`', text)
    assert line is not None
    given = parse(f"state: {{{line[1]}}}", "f.yaml", {})
    assert apply_overrides(given, read_settings()).state.database is not None


def test_workers_are_refused_with_a_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POINTSMAN_DATABASE", "postgresql://me@db.example/x")
    monkeypatch.setenv("POINTSMAN_REQUEST_KEY", "k" * 32)
    assert apply_overrides(GatewayConfig(workers=1), read_settings()).workers == 1
    with pytest.raises(ConfigError, match=r"^mine\.yaml: workers: must be 1 with a database .*POINTSMAN_DATABASE"):
        apply_overrides(GatewayConfig(workers=2), read_settings(), file="mine.yaml")


def test_workers_and_a_database_in_one_file_are_refused_with_the_line() -> None:
    text = f"state: {{database: postgresql://me@db.example/x, request_keys: [{'k' * 32}]}}\nworkers: 2\n"
    with pytest.raises(ConfigError, match=r"^f\.yaml:2:10: workers: must be 1 with a database .*`workers: 1`"):
        parse(text, "f.yaml", {})


@pytest.mark.parametrize("count", [0, 65, -1])
def test_the_number_of_workers_has_bounds(count: int) -> None:
    with pytest.raises(ConfigError, match="workers"):
        parse(f"workers: {count}", "f.yaml", {})


def test_a_wrong_address_in_the_environment_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POINTSMAN_DATABASE", "postgresql://me:hunter2%zz@db.example/x")
    with pytest.raises(ConfigError, match=r"POINTSMAN_DATABASE: is not an address of PostgreSQL") as failure:
        read_settings()
    assert "hunter2" not in str(failure.value)


def test_workers_on_a_database_are_reported_with_the_other_problems_of_a_file() -> None:
    text = """\
workers: 3
state: {database: "postgresql://me@db/x", request_keys: ["%s"]}
servers: {far: {url: "https://mcp.example/mcp", placement: each}}
""" % ("k" * 64)
    with pytest.raises(ConfigError) as raised:
        parse(text, "f.yaml", {})
    said = [str(problem) for problem in raised.value.problems]
    assert len(said) == 2
    assert ["placement" in each for each in said].count(True) == 1
    assert ["workers: must be 1 with a database" in each for each in said].count(True) == 1
