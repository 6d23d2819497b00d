"""`pointsman project` where the configuration has a mistake that the command mends."""

from __future__ import annotations

from pathlib import Path

from pointsman.config.loader import load
from tests.router.cli.commands import run

WITHOUT_PROJECT = "servers:\n  git: {command: uvx, projects: [beta]}  # mine\n"


async def test_a_project_that_is_missing_is_named_with_the_command_that_creates_it(tmp_path: Path) -> None:
    file = tmp_path / "pointsman.yaml"
    file.write_text(WITHOUT_PROJECT)
    told = await run(tmp_path, "config", "validate")
    assert told.code == 2
    assert "add `projects: {beta: {}}`, or run `pointsman project set beta --create`" in told.stderr
    made = await run(tmp_path, "project", "set", "beta", "--create")
    assert made.code == 0, made.stderr
    assert made.stdout.startswith("Project `beta`: optimization bm25")
    assert "# mine" in file.read_text()
    assert list(load(file, {}).projects) == ["beta"]


async def test_an_edit_is_kept_where_other_mistakes_remain_and_they_are_told(tmp_path: Path) -> None:
    file = tmp_path / "pointsman.yaml"
    file.write_text(f"{WITHOUT_PROJECT}listen: {{port: x}}\n")
    made = await run(tmp_path, "project", "set", "beta", "--create")
    assert made.code == 1
    assert "was changed. It has other problems:" in made.stderr
    assert "listen.port" in made.stderr
    assert "beta" not in made.stderr
    assert "beta: {}" in file.read_text()


async def test_a_missing_project_is_told_before_that_there_is_nothing_to_set(tmp_path: Path) -> None:
    (tmp_path / "pointsman.yaml").write_text("projects: {beta: {}}\n")
    missing = await run(tmp_path, "project", "set", "alpha")
    assert (missing.code, "`pointsman project set alpha --create` creates it" in missing.stderr) == (2, True)
    nothing = await run(tmp_path, "project", "set", "beta")
    assert (nothing.code, nothing.stderr) == (2, "Nothing to set. Give --optimization, --exposure or --tools.\n")


async def test_a_project_is_removed_unless_it_is_in_use(tmp_path: Path) -> None:
    file = tmp_path / "pointsman.yaml"
    text = "projects:\n  beta: {}  # used\n  idle: {}\nservers:\n  git: {command: uvx, projects: [beta]}\n"
    file.write_text(text)
    used = await run(tmp_path, "project", "remove", "beta")
    assert used.code == 2
    assert "servers.git.projects" in used.stderr
    unknown = await run(tmp_path, "project", "remove", "idel")
    assert (unknown.code, "Did you mean `idle`?" in unknown.stderr) == (2, True)
    assert file.read_text() == text
    removed = await run(tmp_path, "project", "remove", "idle", "--json")
    assert removed.code == 0, removed.stderr
    assert '"removed": "idle"' in removed.stdout
    assert file.read_text() == text.replace("  idle: {}\n", "")
