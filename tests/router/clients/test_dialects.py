"""Each client's entry is written exactly as the golden file has it, and where the client looks for it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pointsman.router.clients.client_file import parsed
from pointsman.router.clients.dialects import DIALECTS, Dialect, project_file, user_file
from pointsman.router.clients.entry import Connection, NotExpressibleError, entry_for, own_command, typed_command
from pointsman.router.clients.setup import snippet

GOLDEN = Path(__file__).parent / "golden"
URL = "http://127.0.0.1:3282/mcp"
COMMAND = ("/opt/pointsman/bin/pointsman", "stdio", "--project", "research")
FORMS = {
    "http": Connection(URL, "ptm_secret"),
    "http with a variable": Connection(URL, variable="MY_TOKEN"),
    "stdio": Connection("", "ptm_secret", command=COMMAND),
    "stdio with a variable": Connection("", variable="MY_TOKEN", command=COMMAND),
}
every_client = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=list(DIALECTS))


def written(dialect: Dialect, connection: Connection) -> str:
    try:
        return snippet(dialect, "pointsman", entry_for(dialect, connection))
    except NotExpressibleError as error:
        return f"{error}\n"


@every_client
def test_every_form_is_as_in_the_golden_file(dialect: Dialect) -> None:
    found = "\n".join(f"=== {form}\n{written(dialect, connection)}" for form, connection in FORMS.items())
    assert found == (GOLDEN / f"{dialect.name}.txt").read_text()


def test_there_is_a_golden_file_for_every_client_and_no_other() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(DIALECTS)


@every_client
def test_what_is_printed_is_valid_in_its_own_format(dialect: Dialect) -> None:
    entry = entry_for(dialect, FORMS["stdio"])
    assert parsed(snippet(dialect, "a name", entry), dialect.format, "it")[dialect.section] == {"a name": entry}


@every_client
def test_the_file_is_below_the_home_of_the_user(dialect: Dialect) -> None:
    for platform in ("linux", "darwin"):
        assert user_file(dialect, {"HOME": "/home/anna"}, platform).is_relative_to("/home/anna")
    inside = project_file(dialect, Path("/src/app"))
    assert inside is None or inside.is_relative_to("/src/app")


def test_variables_of_the_client_and_of_the_desktop_move_its_file() -> None:
    home = {"HOME": "/home/anna"}
    codex = DIALECTS["codex"]
    assert user_file(codex, home) == Path("/home/anna/.codex/config.toml")
    assert user_file(codex, {**home, "CODEX_HOME": "/data/codex"}) == Path("/data/codex/config.toml")
    desktop = DIALECTS["claude-desktop"]
    assert str(user_file(desktop, home, "darwin")).startswith("/home/anna/Library/Application Support/Claude/")
    assert str(user_file(desktop, {**home, "XDG_CONFIG_HOME": "/x"}, "linux")).startswith("/x/Claude/")


def test_of_several_places_the_one_that_exists_is_taken(tmp_path: Path) -> None:
    other = tmp_path / ".config/opencode/opencode.jsonc"
    home = {"HOME": str(tmp_path)}
    assert user_file(DIALECTS["opencode"], home).name == "opencode.json"
    other.parent.mkdir(parents=True)
    other.write_text("{}")
    assert user_file(DIALECTS["opencode"], home) == other


def test_a_person_who_uses_uvx_is_told_to_type_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "uv/archive-v0/a1b2/bin"  # which uvx puts on the PATH of this process, and may delete
    folder.mkdir(parents=True)
    for program in (folder / "pointsman", tmp_path / "uvx"):
        program.touch(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{tmp_path}")
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    assert typed_command() == "uvx pointsman"
    assert own_command() == (str(tmp_path / "uvx"), "pointsman")


def test_our_own_command_is_absolute_and_there() -> None:
    program = Path(own_command()[0])
    assert program.is_absolute()
    assert program.exists()


@every_client
def test_the_page_has_the_files_and_says_how_the_form_was_checked(dialect: Dialect) -> None:
    page = (Path(__file__).parents[3] / "docs/guide/clients.md").read_text()
    [row] = [line for line in page.splitlines() if f"| `{dialect.name}` |" in line]
    assert all(f"`{file}`" in row for file in dialect.user_files)
    assert dialect.project_file is None or f"`{dialect.project_file}`" in row
    assert ("the real program" if dialect.verified else "documentation") in row
