"""The list of commands: complete, true, and shown without importing the commands."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from pointsman.router.cli.main import COMMANDS, HELP, main

# What `--help` and a completion of the first word may import costs every use of the shell's TAB key.
PROGRAM = """
import sys
from pointsman.router.cli.main import main
try:
    main({args!r}, prog_name="pointsman")
except SystemExit:
    pass
print(sorted(name for name in sys.modules if name.split(".")[0] in ("pydantic", "ruamel", "msgspec", "asyncio", "mcp")
             or name.startswith("pointsman.router.cli.")), file=sys.stderr)
"""


def test_the_help_of_each_command_is_its_own() -> None:
    context = click.Context(main)
    assert list(HELP) == list(COMMANDS)
    for name, text in HELP.items():
        command = main.get_command(context, name)
        assert command is not None
        assert command.get_short_help_str(limit=1000) == text


def test_the_list_of_commands_is_shown_without_importing_any_of_them() -> None:
    shown = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM.format(args=["--help"])], capture_output=True, text=True, check=True
    )
    for name, text in HELP.items():
        assert f"  {name} " in shown.stdout
        assert text.split()[0] in shown.stdout
    assert shown.stderr.strip() == "['pointsman.router.cli.main']"


def test_the_shell_completes_commands_without_importing_any_of_them() -> None:
    items = main.shell_complete(click.Context(main), "s")
    assert [item.value for item in items] == [name for name in COMMANDS if name.startswith("s")]


@pytest.mark.parametrize("line", ["", "server", "tools", "archive", "archive context"])
def test_a_group_without_its_command_prints_its_help(line: str) -> None:
    """With the exit code of a command line that is not complete."""
    shown = CliRunner().invoke(main, line.split(), prog_name="pointsman")
    assert shown.exit_code == 2
    wanted = CliRunner().invoke(main, [*line.split(), "--help"], prog_name="pointsman")
    assert shown.stderr == wanted.stdout


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("log --level info", ""),
        ("log --folow", " Did you mean `--follow`?"),
        ("log --line 3", " Did you mean `--lines`?"),
    ],
)
def test_only_an_option_that_resembles_the_unknown_one_is_suggested(line: str, hint: str) -> None:
    shown = CliRunner().invoke(main, line.split())
    option = line.split()[1]
    assert shown.exit_code == 2
    assert shown.stderr.splitlines()[-1] == f"Error: No such option '{option}'.{hint}"
