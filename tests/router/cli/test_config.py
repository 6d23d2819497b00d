"""`pointsman config` as a person and a program see it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pointsman.config.loader import parse
from pointsman.router.cli.main import main

HASH = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
GOOD = (
    f"servers: {{time: {{command: uvx, env: {{KEY: s3cret}}}}}}\ntokens: {{a: {{sha256: {HASH}, servers: [time]}}}}\n"
)
BROKEN = "servers: {time: {comand: uvx}}\nlisten: {port: x}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*args: str, **environ: str) -> Result:
    own = dict.fromkeys(("POINTSMAN_CONFIG", "POINTSMAN_PORT", "XDG_CONFIG_HOME", "POINTSMAN_CONFIG_DIR"))
    return CliRunner().invoke(main, args, env={**own, "HOME": str(Path.cwd()), **environ})


@pytest.mark.parametrize("environment", [False, True])
def test_workers_with_a_database_are_refused_as_by_serve(folder: Path, environment: bool) -> None:
    database = "postgresql://me@db.example/x"
    state = "" if environment else f"state: {{database: {database}, request_keys: [{'k' * 32}]}}\n"
    given = {"POINTSMAN_DATABASE": database, "POINTSMAN_REQUEST_KEY": "k" * 32} if environment else {}
    (folder / "two.yaml").write_text(f"workers: 2\n{state}")
    results = [
        run(*words, **given)
        for words in (
            ("config", "validate", "two.yaml"),
            ("serve", "--config", "two.yaml", "--state-dir", "state"),
            ("config", "show", "--config", "two.yaml"),
        )
    ]
    assert [result.exit_code for result in results] == [2, 2, 2]
    said = [result.stderr.removeprefix("Error: ").replace(f"{folder}/", "") for result in results]
    assert said[0] == said[1] == said[2]
    assert re.match(r"two\.yaml(:1:10)?: workers: must be 1 with a database .* Write `workers: 1`", said[0])
    told = json.loads(run("config", "validate", "two.yaml", "--json", **given).stdout)
    assert (told["ok"], told["problems"][0]["key"]) == (False, "workers")


def test_a_database_without_keys_is_refused_as_by_serve(folder: Path) -> None:
    (folder / "shared.yaml").write_text("state: {database: postgresql://me@db.example/x}\n")
    result = run("config", "validate", "shared.yaml")
    assert result.exit_code == 2
    assert "shared.yaml: state.request_keys: is required with `state.database`" in result.stderr


def test_a_good_file_is_one_line_on_stdout(folder: Path) -> None:
    (folder / "good.yaml").write_text(GOOD)
    result = run("config", "validate", "good.yaml")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "good.yaml: ok, 1 server, 0 projects, 1 token\n"


def test_what_is_allowed_but_hardly_meant_is_told_beside_it(folder: Path) -> None:
    (folder / "cloudy.yaml").write_text("projects: {red: {optimization: cloud}}\n")
    remark = (
        "`projects.red.optimization`: `cloud` needs `cloud_search` with `url` and `token`; "
        "until it is set, the local search answers."
    )
    result = run("config", "validate", "cloudy.yaml")
    assert (result.exit_code, result.stderr) == (0, remark + "\n")
    answer = json.loads(run("config", "validate", "cloudy.yaml", "--json").stdout)
    assert answer == {"ok": True, "problems": [], "advice": [remark]}


def test_a_pasted_block_is_noted_and_its_servers_are_edited_by_either_name(folder: Path) -> None:
    file = folder / "pointsman.yaml"
    file.write_text('{"mcpServers": {"My Notes": {"command": "notes", "trust": true}}}\n')
    notes = [
        'pointsman.yaml:1:17: mcpServers."My Notes": has the id `My-Notes` here and keeps this name for display',
        'pointsman.yaml:1:50: mcpServers."My Notes".trust: is ignored: it loosens nothing here; '
        "`confirm` says which calls need a yes, `tool_permissions` forbids tools for all clients",
    ]
    result = run("config", "validate", "pointsman.yaml")
    assert (result.exit_code, result.stderr.splitlines()) == (0, notes)
    assert json.loads(run("config", "validate", "pointsman.yaml", "--json").stdout)["advice"] == notes
    for name, verb, enabled in (("My Notes", "disable", False), ("My-Notes", "enable", True)):
        edited = run("server", verb, name, "--config", "pointsman.yaml")
        assert (edited.exit_code, edited.stdout) == (0, f"{verb.title()}d server `My-Notes` in pointsman.yaml.\n")
        assert parse(file.read_text(), "f", {}).servers["My-Notes"].enabled is enabled
    assert run("server", "add", "--config", "pointsman.yaml", "My Clock", "uvx").exit_code == 0
    assert parse(file.read_text(), "f", {}).servers["My-Clock"].name == "My Clock"
    assert run("server", "remove", "My Notes", "--config", "pointsman.yaml").exit_code == 0
    assert list(parse(file.read_text(), "f", {}).servers) == ["My-Clock"]


def test_problems_are_lines_on_stderr_and_exit_code_2(folder: Path) -> None:
    (folder / "bad.yaml").write_text(BROKEN)
    for args in (("validate", "bad.yaml"), ("validate", "--config", "bad.yaml"), ("show", "--config", "bad.yaml")):
        result = run("config", *args)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.splitlines() == [
            "bad.yaml:1:18: servers.time.comand: unknown key (did you mean `command`?)",
            "bad.yaml:2:16: listen.port: must be a whole number",
        ]


def test_problems_as_json(folder: Path) -> None:
    (folder / "bad.yaml").write_text(BROKEN)
    result = run("config", "validate", "bad.yaml", "--json")
    assert result.exit_code == 2
    answer = json.loads(result.stdout)
    assert answer["ok"] is False
    assert answer["problems"][0] == {
        "file": "bad.yaml",
        "line": 1,
        "column": 18,
        "key": "servers.time.comand",
        "reason": "unknown key",
        "hint": "command",
    }
    (folder / "good.yaml").write_text(GOOD)
    assert json.loads(run("config", "validate", "good.yaml", "--json").stdout) == {"ok": True, "problems": []}


def test_without_a_configuration_the_next_step_is_named(folder: Path) -> None:
    for args in (("config", "validate"), ("config", "show"), ("token", "list")):
        result = run(*args)
        assert result.exit_code == 2
        assert "Run `pointsman serve` to create one" in result.stderr


def test_a_file_that_is_not_there_is_named(folder: Path) -> None:
    result = run("config", "validate", POINTSMAN_CONFIG="elsewhere.yaml")
    assert result.exit_code == 2
    assert result.stderr == "elsewhere.yaml: cannot be read: No such file or directory\n"


def test_serve_says_what_to_do_about_a_variable_that_names_no_file(folder: Path) -> None:
    result = run("serve", "--state-dir", "state", POINTSMAN_CONFIG="elsewhere.yaml")
    assert result.exit_code == 2
    assert "the variable POINTSMAN_CONFIG names it. Correct the variable or unset it" in result.stderr


def test_show_prints_what_holds_without_secrets(folder: Path) -> None:
    (folder / "pointsman.yaml").write_text(GOOD)
    result = run("config", "show", POINTSMAN_PORT="4000")
    assert "s3cret" not in result.output
    shown = parse(result.stdout, "shown.yaml", {})
    assert shown.listen.port == 4000
    assert shown.servers["time"].command == "uvx"
    assert shown.tokens["a"].sha256 == HASH
    as_json = json.loads(run("config", "show", "--json", POINTSMAN_PORT="4000").stdout)
    assert as_json["servers"]["time"]["env"] == {"KEY": "********"}
    assert as_json["listen"]["port"] == 4000


def test_a_bad_variable_is_an_error_of_the_same_kind(folder: Path) -> None:
    (folder / "pointsman.yaml").write_text(GOOD)
    result = run("config", "show", POINTSMAN_PORT="4000x")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "environment: POINTSMAN_PORT: must be a whole number\n"


def test_the_real_command_ends_with_the_same_code(folder: Path) -> None:
    (folder / "bad.yaml").write_text(BROKEN)
    command = [sys.executable, "-P", "-m", "pointsman", "config", "validate", "bad.yaml"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("bad.yaml:1:18: ")
