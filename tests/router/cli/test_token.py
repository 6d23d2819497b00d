"""`pointsman token` as a person and a program see it."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pointsman.config.loader import load
from pointsman.config.secrets import digest
from pointsman.router.cli.main import main

START = """\
# mine
servers:
  time: {command: uvx}   # the clock
projects:
  research: {}
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("POINTSMAN_CONFIG", raising=False)
    file = tmp_path / "pointsman.yaml"
    file.write_text(START)
    return file


def run(*args: str) -> Result:
    return CliRunner().invoke(main, ["token", *args])


def test_the_secret_stands_alone_on_stdout_and_its_hash_in_the_file(file: Path) -> None:
    result = run("create", "laptop", "--project", "research", "--project", "", "--server", "time")
    assert result.exit_code == 0
    secret = result.stdout.removesuffix("\n")
    assert secret.startswith("ptm_")
    assert secret not in file.read_text()
    assert secret not in result.stderr
    token = load(file, {}).tokens["laptop"]
    assert (token.sha256, token.projects, token.servers) == (digest(secret), ("research", ""), ("time",))
    assert file.read_text().startswith(START)


def test_the_secret_as_json(file: Path) -> None:
    answer = json.loads(run("create", "ci", "--json", "--server", "*", "--project", "*").stdout)
    assert answer.keys() == {"name", "token"}
    assert answer["name"] == "ci"
    assert load(file, {}).tokens["ci"].sha256 == digest(answer["token"])


def test_a_token_without_rights_says_so_and_how_to_grant_some(file: Path) -> None:
    result = run("create", "laptop")
    assert result.exit_code == 0
    assert "It may act for no project yet" in result.stderr
    assert "It may use no server yet" in result.stderr
    assert "`tokens.laptop.servers`" in result.stderr
    assert "The search service checks projects only." in result.stderr
    assert len(result.stdout.splitlines()) == 1


def test_a_name_that_is_taken_names_the_way_out(file: Path) -> None:
    run("create", "laptop")
    before = file.read_text()
    result = run("create", "laptop")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "`pointsman token revoke laptop`" in result.stderr
    assert file.read_text() == before


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (
            ("a", "--project", "reserch"),
            "Did you mean `research`? `pointsman project set reserch --create` creates it.",
        ),
        (("a", "--server", "tme"), "tokens.a.servers[0]: no server `tme` (did you mean `time`?)"),
        (("a__b",), "tokens.a__b: an id may contain letters, digits, `_` and `-`, but not `__`"),
        (("a", "--expires", "tomorrow"), "or a duration from now such as 12h, 30d or 8w."),
        (("a", "--expires", "2020-01-01"), "2020-01-01 is in the past."),
        (("a", "--expires", "0d"), "or a duration from now such as 12h, 30d or 8w."),
    ],
)
def test_what_makes_no_sense_is_refused_and_nothing_is_written(
    args: tuple[str, ...], sentence: str, file: Path
) -> None:
    result = run("create", *args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.rstrip("\n").endswith(sentence)
    assert file.read_text() == START


def test_a_token_can_expire_after_a_while_or_on_a_day(file: Path) -> None:
    before = datetime.now(UTC)
    run("create", "a", "--expires", "30d")
    run("create", "b", "--expires", "2999-12-31")
    tokens = load(file, {}).tokens
    assert tokens["a"].expires is not None
    assert timedelta(days=29, hours=23) < tokens["a"].expires - before < timedelta(days=30, minutes=5)
    assert tokens["b"].expires == datetime(2999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)


def test_list_shows_who_may_what_and_what_is_over(file: Path) -> None:
    run("create", "laptop", "--project", "", "--project", "research", "--server", "*", "--expires", "2999-12-31")
    run("create", "idle")
    with file.open("a") as text:
        text.write(f"  old: {{sha256: {'0' * 63}f, projects: ['*'], expires: 2020-01-01}}\n")
    assert run("list").stdout.splitlines() == [
        "NAME    PROJECTS      SERVERS  SCOPES  TOOLS  EXPIRES",
        'laptop  "", research  *        all     all    2999-12-31',
        "idle    none          none     all     all    never",
        "old     *             none     all     all    2020-01-01 (expired)",
    ]
    rows = json.loads(run("list", "--json").stdout)
    assert rows[0] == {
        "name": "laptop",
        "projects": ["", "research"],
        "servers": ["*"],
        "scopes": ["read", "write", "destructive"],
        "tools": None,
        "expires": "2999-12-31",
        "expired": False,
    }
    assert rows[2]["expired"] is True


def test_a_read_only_token_names_the_servers_of_which_it_sees_no_tools(file: Path) -> None:
    file.write_text(START.replace("  time:", "  files: {command: uvx, trust_annotations: true}\n  time:"))
    result = run("create", "reader", "--project", "*", "--server", "*", "--read-only")
    assert "Token `reader` sees no tools of `time`: nobody vouches for" in result.stderr
    assert "set `trust_annotations: true`" in result.stderr
    assert load(file, {}).tokens["reader"].scopes == ("read",)
    for args in (("--server", "files", "--scope", "read"), ("--server", "*", "--scope", "destructive")):
        assert "sees no tools" not in run("create", args[-1], "--project", "*", *args).stderr
    assert (
        "sees no tools"
        not in run("create", "elsewhere", "--project", "research", "--server", "*", "--read-only").stderr
    )


def test_a_token_can_be_limited_to_scopes_and_patterns(file: Path) -> None:
    given = ("--scope", "write", "--scope", "read", "--tools", "time:*", "--tools", "!*:erase_*")
    assert run("create", "ci", "--project", "*", "--server", "*", *given).exit_code == 0
    token = load(file, {}).tokens["ci"]
    assert (token.scopes, token.tools) == (("read", "write"), ("time:*", "!*:erase_*"))
    assert run("list").stdout.splitlines()[1] == "ci    *         *        read, write  time:*, !*:erase_*  never"


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (("--read-only", "--scope", "write"), "--read-only is --scope read; give one of them."),
        (("--scope", "reed"), "'reed' is not one of"),
        (("--tools", "erase"), "needs a server and a tool"),
        (("--tools", "tine:*"), "no server `tine`"),
    ],
)
def test_limits_that_make_no_sense_are_refused_and_nothing_is_written(
    file: Path, args: tuple[str, ...], reason: str
) -> None:
    result = run("create", "ci", "--project", "*", "--server", "*", *args)
    assert result.exit_code == 2
    assert reason in result.stderr
    assert file.read_text() == START


def test_a_revoked_token_is_gone_and_the_rest_as_it_was(file: Path) -> None:
    run("create", "laptop", "--server", "time")
    before = file.read_text()
    run("create", "ci")
    result = run("revoke", "ci")
    assert (result.exit_code, result.stdout) == (0, "")
    assert file.read_text() == before


def test_a_token_that_does_not_exist_cannot_be_revoked(file: Path) -> None:
    run("create", "laptop")
    result = run("revoke", "labtop")
    assert result.exit_code == 2
    assert "No token `labtop`" in result.stderr
    assert "Did you mean `laptop`?" in result.stderr


def test_tokens_are_managed_without_the_daemons_variables(file: Path) -> None:
    file.write_text(START + '  # secret\ncloud_search: {url: https://a.example, token: "${ONLY_THE_DAEMON_HAS_IT}"}\n')
    assert run("create", "laptop", "--server", "time").exit_code == 0
    assert run("list").exit_code == 0
    assert run("revoke", "laptop").exit_code == 0


def test_a_file_that_is_no_yaml_is_told_with_its_place(file: Path) -> None:
    file.write_text("tokens: {a: [")
    for args in (("create", "x"), ("list",), ("revoke", "a")):
        result = run(*args)
        assert (result.exit_code, result.stdout) == (2, "")
        assert f"{file}:1:14: " in result.stderr


def test_tokens_created_at_the_same_time_are_all_kept(file: Path) -> None:
    command = [sys.executable, "-P", "-m", "pointsman", "token", "create", "--project", "*", "--config", str(file)]
    running = [
        subprocess.Popen([*command, f"t{number}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for number in range(4)
    ]
    secrets = [process.communicate(timeout=30)[0].strip() for process in running]
    tokens = load(file, {}).tokens
    assert {name: token.sha256 for name, token in tokens.items()} == {
        f"t{number}": digest(secret) for number, secret in enumerate(secrets)
    }
