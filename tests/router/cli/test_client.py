"""`pointsman client` as a person sees it: the client's file changes by one entry, and can be put back."""

from __future__ import annotations

import json
import resource
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pointsman.config.loader import load
from pointsman.config.secrets import digest
from pointsman.router.cli.main import main
from pointsman.router.clients.dialects import DIALECTS
from pointsman.router.clients.found_servers import offer
from tests.router.cli.commands import CONFIG, config_of, move_home

CURSOR = '{\n  "mcpServers": {\n    "time": {"command": "uvx"}\n  }\n}\n'


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    move_home(tmp_path, monkeypatch)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return tmp_path


def run(*args: str) -> Result:
    return CliRunner().invoke(main, ["client", *args])


def cursor_file(home: Path, text: str = CURSOR) -> Path:
    file = home / ".cursor/mcp.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    return file


@pytest.mark.parametrize("name", DIALECTS)
def test_an_entry_with_a_token_of_its_own_is_written_and_taken_back(name: str, home: Path) -> None:
    result = run("add", name, "--yes")
    assert result.exit_code == 0, result.output
    token = load(config_of(home), {}).tokens[name]
    assert (token.projects, token.servers) == (("*",), ("*",))
    [row] = [row for row in json.loads(run("list", "--json").stdout) if row["client"] == name]
    assert row["state"] == "set up"
    file = Path(row["file"])
    secret = "ptm_" + file.read_text().partition("ptm_")[2].partition('"')[0]
    assert digest(secret) == token.sha256
    assert secret not in result.output
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert run("undo", name).exit_code == 0
    assert not file.exists()
    assert config_of(home).read_text().startswith(CONFIG)
    assert not load(config_of(home), {}).tokens


def test_a_second_add_changes_nothing_and_a_new_address_keeps_the_token(home: Path) -> None:
    with config_of(home).open("a") as config:
        config.write("projects: {research: {}}\n")
    run("add", "cursor", "--yes")
    before = (home / ".cursor/mcp.json").read_text()
    again = run("add", "cursor")
    file = home / ".cursor/mcp.json"
    assert (again.exit_code, again.stderr) == (0, f"Cursor is set up already in {file}; nothing to change.\n")
    assert run("add", "cursor", "--yes", "--project", "research").exit_code == 0
    after = (home / ".cursor/mcp.json").read_text()
    assert after == before.replace("3282/mcp", "3282/projects/research/mcp")
    assert list(load(config_of(home), {}).tokens) == ["cursor"]


def test_a_token_that_the_entry_no_longer_has_is_named_with_the_command_that_revokes_it(home: Path) -> None:
    run("add", "cursor", "--yes")
    cursor_file(home).write_text("{}")
    second = run("add", "cursor", "--yes")
    assert "A token `cursor-2` is created in" in second.stderr
    assert "`cursor` stays valid: if nothing else uses it, run `pointsman token revoke cursor`." in second.stderr
    cursor_file(home).write_text("{}")
    assert "`cursor`, `cursor-2` stay valid" in run("add", "cursor", "--yes").stderr
    assert list(load(config_of(home), {}).tokens) == ["cursor", "cursor-2", "cursor-3"]


def test_a_link_that_leads_nowhere_is_named(home: Path) -> None:
    file = cursor_file(home)
    file.unlink(missing_ok=True)
    file.symlink_to(home / "dotfiles/mcp.json")
    result = run("add", "cursor", "--yes")
    assert result.exit_code == 1
    assert f"{file} is a link to {home / 'dotfiles/mcp.json'}, which does not exist." in result.stderr
    assert not load(config_of(home), {}).tokens


def test_the_list_says_why_a_file_is_unreadable_and_which_entry_leads_elsewhere(home: Path) -> None:
    run("add", "cursor", "--yes")
    file = home / ".cursor/mcp.json"
    file.write_text(file.read_text().replace(":3282/", ":3283/"))
    zed = home / ".config/zed/settings.json"
    zed.parent.mkdir(parents=True)
    zed.write_text("{ broken")
    shown = run("list").stdout
    assert f"| {zed} is not valid JSON" in shown
    assert "| its URL has port 3283, but the gateway listens on 3282. `pointsman client add cursor`" in shown
    states = {row["client"]: row["state"] for row in json.loads(run("list", "--json").stdout)}
    assert (states["cursor"], states["zed"]) == ("other address", "unreadable")
    run("add", "cursor", "--yes")
    assert "its URL has port" not in run("list").stdout


def test_other_entries_the_mode_and_a_link_are_kept(home: Path) -> None:
    file = cursor_file(home)
    real = home / "dotfiles.json"
    file.rename(real)
    file.symlink_to(real)
    real.chmod(0o640)
    result = run("add", "cursor", "--yes")
    assert file.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert "chmod 600" in result.stderr
    assert real.read_text().startswith(CURSOR[:50])
    run("undo", "cursor")
    assert real.read_text() == CURSOR


def test_undo_puts_back_only_the_entry_where_the_client_has_written_since(home: Path) -> None:
    file = cursor_file(home, '{"mcpServers": {"pointsman": {"url": "http://old.example/mcp"}}}')
    run("add", "cursor", "--yes")
    changed = json.loads(file.read_text()) | {"theme": "dark"}
    file.write_text(json.dumps(changed))
    assert run("undo", "cursor").exit_code == 0
    assert json.loads(file.read_text()) == {
        "mcpServers": {"pointsman": {"url": "http://old.example/mcp"}},
        "theme": "dark",
    }
    assert run("undo", "cursor").exit_code == 1


def test_remove_takes_the_entry_and_undo_puts_it_back(home: Path) -> None:
    file = cursor_file(home)
    run("add", "cursor", "--yes")
    added = file.read_text()
    result = run("remove", "cursor", "--yes")
    assert file.read_text() == CURSOR
    assert "`pointsman token revoke cursor`" in result.stderr
    assert "Removed. A running Cursor may use it until it is started anew." in result.stderr
    assert run("undo", "cursor", "--yes").exit_code == 0
    assert file.read_text() == added
    run("remove", "cursor", "--yes")
    assert "nothing to remove" in run("remove", "cursor", "--yes").stderr


@pytest.mark.parametrize("name", ["a/b c", "", "x" * 65])
def test_an_entry_has_a_name_that_every_client_accepts(home: Path, name: str) -> None:
    file = cursor_file(home)
    result = run("add", "cursor", "--as", name, "--yes")
    assert (result.exit_code, "letters, digits" in result.stderr) == (2, True)
    assert file.read_text() == CURSOR


def test_the_list_counts_the_servers_that_an_import_would_find(home: Path) -> None:
    servers = {"a": {"command": "x"}, "broken": {}, "pointsman": {"url": "http://127.0.0.1:3282/mcp"}}
    in_folder = {"/srv/site": {"mcpServers": {"b": {"command": "y"}}}}
    (home / ".claude.json").write_text(json.dumps({"mcpServers": servers, "projects": in_folder}))
    [row] = [row for row in json.loads(run("list", "--json").stdout) if row["client"] == "claude-code"]
    assert row["others"] == 2
    assert offer({"HOME": str(home)}, "http://127.0.0.1:3282/mcp") == "Claude Code (2)"


def test_nothing_is_written_without_a_yes(home: Path) -> None:
    file = cursor_file(home)
    unasked = run("add", "cursor")
    assert (unasked.exit_code, "--yes" in unasked.stderr) == (2, True)
    assert run("add", "cursor", "--dry-run").exit_code == 0
    assert file.read_text() == CURSOR
    assert config_of(home).read_text() == CONFIG


def test_a_broken_file_is_named_with_its_line_and_left_alone(home: Path) -> None:
    file = cursor_file(home, '{\n  "mcpServers": {\n    "a" 1\n')
    result = run("add", "cursor", "--yes")
    assert result.exit_code == 1
    assert f"{file} is not valid JSON: line 3" in result.stderr
    assert config_of(home).read_text() == CONFIG
    rows = json.loads(run("list", "--json").stdout)
    assert [row["state"] for row in rows if row["client"] == "cursor"] == ["unreadable"]


def test_a_project_s_file_gets_a_variable_instead_of_the_token(home: Path) -> None:
    assert run("add", "claude-code", "--scope", "project", "--yes").exit_code == 0
    text = (home / "work/.mcp.json").read_text()
    assert "Bearer ${POINTSMAN_TOKEN}" in text
    assert config_of(home).read_text() == CONFIG


def test_a_project_s_file_that_leads_elsewhere_is_refused(home: Path) -> None:
    (home / "work/.mcp.json").symlink_to(home / "outside.json")
    result = run("add", "claude-code", "--scope", "project", "--yes")
    assert result.exit_code == 1
    assert not (home / "outside.json").exists()


def test_the_token_in_the_environment_is_used(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POINTSMAN_TOKEN", "ptm_given")
    run("add", "cursor", "--yes", "--url", "https://gateway.example/mcp")
    entry = json.loads((home / ".cursor/mcp.json").read_text())["mcpServers"]["pointsman"]
    assert entry == {"url": "https://gateway.example/mcp", "headers": {"Authorization": "Bearer ptm_given"}}
    assert config_of(home).read_text() == CONFIG


def test_a_desktop_app_gets_absolute_paths(home: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(CONFIG)
    run("add", "claude-desktop", "--yes", "--config", str(other), "--state-dir", str(tmp_path / "state"))
    written = json.loads((home / ".config/Claude/claude_desktop_config.json").read_text())
    entry = written["mcpServers"]["pointsman"]
    assert Path(entry["command"]).is_absolute()
    assert entry["args"] == ["stdio", "--config", str(other), "--state-dir", str(tmp_path / "state")]


def test_an_unknown_client_is_answered_with_the_nearest(home: Path) -> None:
    result = run("add", "claude-cod")
    assert result.exit_code == 2
    assert "Did you mean `claude-code`?" in result.stderr


def test_print_changes_nothing_and_has_the_entry_alone_on_stdout(home: Path) -> None:
    result = run("print", "cursor")
    assert "pointsman" in json.loads(result.stdout)["mcpServers"]
    assert not (home / ".cursor").exists()
    assert run("print", "zed", "--env", "X").exit_code == 1


def test_a_full_disk_costs_nothing(home: Path) -> None:
    file = cursor_file(home, json.dumps({"mcpServers": {}, "history": ["x" * 100_000]}))
    before = file.read_text()
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "pointsman", "client", "add", "cursor", "--yes"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert "File too large" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert file.read_text() == before
    assert config_of(home).read_text().startswith(CONFIG)
    assert not load(config_of(home), {}).tokens
    assert [path.name for path in file.parent.iterdir()] == ["mcp.json"]


def test_a_project_s_file_is_refused_where_the_client_reads_no_variable(home: Path) -> None:
    result = run("add", "zed", "--scope", "project", "--yes")
    assert result.exit_code == 1
    assert "must not hold a token" in result.stderr
    assert "Leave --scope away" in result.stderr
    assert not (home / "work/.zed").exists()


def test_each_command_has_its_result_as_json_without_a_secret(home: Path) -> None:
    file = str(cursor_file(home))
    printed = json.loads(run("print", "cursor", "--json").stdout)
    assert (printed["file"], printed["entry"]["url"]) == (file, "http://127.0.0.1:3282/mcp")
    assert json.loads(printed["text"])["mcpServers"]["pointsman"] == printed["entry"]
    tried = json.loads(run("add", "cursor", "--dry-run", "--json").stdout)
    assert tried == {"client": "cursor", "file": file, "name": "pointsman", "changed": False, "token": None}
    added = run("add", "cursor", "--yes", "--json")
    assert json.loads(added.stdout) == {**tried, "changed": True, "token": "cursor"}
    assert "ptm_" not in added.stdout
    assert json.loads(run("add", "cursor", "--json").stdout)["changed"] is False
    removed = json.loads(run("remove", "cursor", "--yes", "--json").stdout)
    assert (removed["changed"], removed["token"]) == (True, "cursor")  # which is still valid
    restored = json.loads(run("undo", "cursor", "--json").stdout)
    assert (restored["file"], restored["token"]) == (file, None)
    undone = json.loads(run("undo", "cursor", "--json").stdout)
    assert (undone["changed"], undone["token"]) == (True, "cursor")
