"""The table of exit codes is complete and true, and every command that prints a result can print JSON."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from pointsman.router.cli.main import main

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")
TABLE = PAGE.partition("## Exit codes")[2].partition("## ")[0]
ENDLESS = {"serve", "stdio", "search-api serve"}  # they serve until they are stopped, and print no result


def commands(command: click.Command = main, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield " ".join(path), command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None
        yield from commands(below, (*path, name))


def test_every_command_that_prints_a_result_can_print_json() -> None:
    without = {name for name, command in commands() if not any("--json" in each.opts for each in command.params)}
    assert without == ENDLESS


def written_codes() -> Iterator[int]:
    """The exit codes that stand in the source of the commands."""
    for file in (*ROOT.glob("src/pointsman/router/**/*.py"), *ROOT.glob("src/pointsman/archive/commands/*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            value: ast.expr | None = None
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("sys.exit", "ctx.exit", "SystemExit"):
                [value] = node.args
            elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "exit_code":
                value = node.value
            if value is not None:
                assert isinstance(value, ast.Constant), f"{file}: {ast.unparse(node)}"
                assert isinstance(value.value, int)
                yield value.value


def test_the_table_has_every_code_and_no_other() -> None:
    listed = {int(code) for code in re.findall(r"^\| (\d+) \|", TABLE, re.MULTILINE)}
    assert listed == {0, 1, *written_codes()}  # 0 and 1 are also click's own
    assert "128 + " in TABLE


@pytest.fixture
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CONFIG", "CONFIG_DIR", "STATE_DIR", "TOKEN", "HOST", "PORT"):
        monkeypatch.delenv(f"POINTSMAN_{name}", raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pointsman.yaml").write_text("listen: {port: 0}\nservers: {time: {command: uvx}}\ntokens: {}\n")
    (tmp_path / "broken.yaml").write_text("servers: []\n")


@pytest.mark.usefixtures("_home")
@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("--version", 0),
        ("config validate", 0),
        ("server list", 0),
        ("service print", 0),
        ("client add cursor --dry-run", 0),
        ("doctor", 1),  # there is no token
        ("service status", 1),
        ("service uninstall --yes", 1),
        ("client undo cursor", 1),
        ("server log time", 1),
        ("log", 1),
        ("import --undo", 1),
        ("nonsense", 2),
        ("", 2),
        ("server", 2),
        ("server remove tiem", 2),
        ("server add time uvx", 2),
        ("server test tiem", 2),
        ("project set nope --exposure flat", 2),
        ("token revoke nope", 2),
        ("status --state-dir=", 2),
        ("audit list --state-dir=", 2),
        ("config validate --config=", 2),
        ("archive list --state-dir=", 2),
        ("config validate broken.yaml", 2),
        ("server list --config broken.yaml", 2),
        ("server add x --env A uvx", 2),
        ("client add cursor", 2),  # not confirmed
        ("token create", 2),
        ("audit list", 2),  # there is no state folder
        ("archive embed", 2),  # there is no archive
        ("status", 3),
        ("server restart time", 3),
        ("tools list", 3),
        ("tools search clock", 3),
        ("tools call time:now", 3),
    ],
)
def test_a_command_ends_with_the_code_of_the_table(line: str, code: int) -> None:
    done = CliRunner().invoke(main, line.split())
    assert done.exit_code == code, done.output
    assert code == 0 or done.stderr or line in ("doctor", "service status"), "nothing says why"
    if code == 3:
        assert "pointsman serve" in done.stderr
        with_json = CliRunner().invoke(main, [*line.split(), "--json"])
        assert (with_json.exit_code, with_json.stdout) == (3, "")


@pytest.mark.usefixtures("_home")
@pytest.mark.parametrize("line", ["doctor --json", "service status --json", "config validate broken.yaml --json"])
def test_a_result_that_is_bad_news_is_json_all_the_same(line: str) -> None:
    done = CliRunner().invoke(main, line.split())
    assert done.exit_code in (1, 2)
    assert json.loads(done.stdout)
