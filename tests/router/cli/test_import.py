"""`pointsman import` as a person sees it: a plan, a question, servers that run, and a way back."""

from __future__ import annotations

import asyncio
import json
import resource
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pointsman.config.loader import load
from pointsman.router.cli.main import main
from tests.gateway_process import gateway_process, own_environment
from tests.router.cli.commands import CONFIG, config_of, move_home

SECRET = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
CURSOR = {
    "mcpServers": {
        "github": {"command": "npx", "args": ["-y", "server-github"], "env": {"GITHUB_TOKEN": SECRET}},
        "far away": {"url": "https://far.example/mcp", "headers": {"Authorization": f"Bearer {SECRET}"}},
        "pointsman": {"url": "http://127.0.0.1:3282/mcp", "headers": {"Authorization": "Bearer ptm_own"}},
    }
}
CLOCK = Path(__file__).parents[2] / "e2e" / "clients" / "clock_server.py"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    move_home(tmp_path, monkeypatch)
    cursor = tmp_path / ".cursor/mcp.json"
    cursor.parent.mkdir()
    cursor.write_text(json.dumps(CURSOR))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*args: str, stdin: str = "") -> Result:
    return CliRunner().invoke(main, ["import", *args], input=stdin)


def test_servers_are_added_with_their_secrets_in_files_and_taken_back(home: Path) -> None:
    result = run("--yes")
    assert result.exit_code == 0, result.output
    config = config_of(home)
    assert config.read_text().startswith(CONFIG)
    assert SECRET not in config.read_text() + result.output
    servers = load(config, {}).servers
    assert list(servers) == ["time", "github", "far-away"]
    assert servers["far-away"].name == "far away"
    assert servers["github"].env["GITHUB_TOKEN"].get_secret_value() == SECRET
    assert servers["far-away"].headers["Authorization"].get_secret_value() == f"Bearer {SECRET}"
    files = sorted((config.parent / "secrets").iterdir())
    assert [file.name for file in files] == ["far-away.Authorization", "github.GITHUB_TOKEN"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert json.loads((home / ".cursor/mcp.json").read_text()) == CURSOR

    assert run("--undo").exit_code == 0
    assert config.read_text() == CONFIG
    assert not (config.parent / "secrets").exists()
    assert "no import to take back" in run("--undo").stderr


def test_undo_after_an_edit_removes_only_what_was_imported(home: Path) -> None:
    run("--yes")
    config = config_of(home)
    config.write_text(config.read_text() + "projects:\n  research: {}\n")
    assert run("--undo").exit_code == 0
    loaded = load(config, {})
    assert (list(loaded.servers), list(loaded.projects)) == (["time"], ["research"])


def test_a_second_import_finds_nothing_new(home: Path) -> None:
    run("--yes")
    before = config_of(home).read_text()
    again = run("--yes")
    assert again.exit_code == 0
    assert "the same as `github`" in again.stderr
    assert "Nothing to import." in again.stderr
    assert config_of(home).read_text() == before


def test_nothing_is_written_without_a_yes(home: Path) -> None:
    result = run()
    assert result.exit_code == 2
    assert "--yes" in result.stderr
    assert "github" in result.stderr
    assert "it is this gateway itself" in result.stderr
    assert SECRET not in result.output
    assert run("--dry-run").exit_code == 0
    assert config_of(home).read_text() == CONFIG
    assert not (config_of(home).parent / "secrets").exists()


def test_a_person_at_a_terminal_is_asked(home: Path) -> None:
    script = f"{sys.executable} -P -m pointsman import"
    command = ["script", "-qec", script, "/dev/null"]
    said = subprocess.run(command, input="n\n", capture_output=True, text=True, timeout=60, check=False)
    assert "Go on?" in said.stdout
    assert "Nothing was changed." in said.stdout
    assert config_of(home).read_text() == CONFIG


def test_one_client_one_server_and_other_places(home: Path) -> None:
    assert "Nothing to import." in run("--from", "zed").stderr
    plan = json.loads(run("--from", "cursor", "--server", "github", "--json", "--dry-run").stdout)
    assert [one["id"] for one in plan["servers"]] == ["github"]
    (home / ".mcp.json").write_text('{"mcpServers": {"shared": {"command": "x"}}}')
    plan = json.loads(run("--from", "claude-code", "--scope", "project", "--json", "--dry-run").stdout)
    assert [one["id"] for one in plan["servers"]] == ["shared"]


def test_a_file_and_stdin(home: Path) -> None:
    text = '{"servers": {"a": {"type": "stdio", "command": "x"}}}'
    (home / "pasted.json").write_text(text)
    assert run("pasted.json", "--yes").exit_code == 0
    assert run("-", "--yes", stdin='{"b": {"command": "y"}}').exit_code == 0
    assert list(load(config_of(home), {}).servers) == ["time", "a", "b"]


@pytest.mark.parametrize("file", ["none.json", ".", "/dev/zero"])
def test_what_is_no_file_is_refused(home: Path, file: str) -> None:
    result = run(file, "--yes")
    assert result.exit_code == 1
    assert "Traceback" not in result.output


def test_a_broken_file_of_one_client_does_not_hide_the_others(home: Path) -> None:
    zed = home / ".config/zed/settings.json"
    zed.parent.mkdir()
    zed.write_text("{ broken")
    result = run("--yes")
    assert "zed/settings.json is not valid JSON" in result.stderr
    assert "github" in load(config_of(home), {}).servers


def test_a_broken_file_alone_is_a_failure(home: Path) -> None:
    (home / ".cursor/mcp.json").write_text("{ broken")
    result = run("--from", "cursor")
    assert result.exit_code == 1
    assert result.stderr.startswith("Not read: ")
    assert "Nothing to import." in result.stderr


def test_the_plan_shows_the_host_of_a_url_with_a_password(home: Path) -> None:
    entry = {"url": "https://anna:hunter-22@far.example/mcp"}
    (home / ".cursor/mcp.json").write_text(json.dumps({"mcpServers": {"far": entry}}))
    result = run("--yes")
    assert "https://********@far.example/mcp" in result.stderr
    assert "hunter" not in result.output + config_of(home).read_text()
    assert "@far.example/mcp" in config_of(home).read_text()
    assert load(config_of(home), {}).servers["far"].url == entry["url"]


def test_the_plan_says_that_a_server_of_one_folder_will_be_everybody_s(home: Path) -> None:
    servers = {"mcpServers": {"here": {"command": "x"}}}
    (home / ".claude.json").write_text(json.dumps({"projects": {"/srv/site": servers}}))
    said = run("--from", "claude-code", "--dry-run").stderr
    assert "Claude Code uses it in /srv/site only; here, every client can use it" in said


def test_the_plan_says_what_stays_disabled_and_what_is_dropped(home: Path) -> None:
    entries = {"slow": {"command": "x", "timeout": 5000}, "off": {"command": "y", "disabled": True}}
    (home / ".cursor/mcp.json").write_text(json.dumps({"mcpServers": entries}))
    said = run("--dry-run").stderr
    assert said.count("`timeout` is left out") == 1
    assert said.count("stays disabled") == 1


def test_a_server_that_is_nowhere_is_named(home: Path) -> None:
    nowhere = run("--server", "nosuch", "--yes")
    assert (nowhere.exit_code, "There is no server `nosuch` to import." in nowhere.stderr) == (2, True)
    near = run("--server", "github", "--server", "far way", "--yes")
    assert (near.exit_code, "Did you mean `far away`?" in near.stderr) == (2, True)
    assert config_of(home).read_text() == CONFIG


def test_without_a_configuration_the_next_step_is_said(home: Path) -> None:
    config_of(home).unlink()
    result = run("--yes")
    assert result.exit_code == 2
    assert "pointsman serve" in result.stderr


def test_a_full_disk_leaves_nothing_behind(home: Path) -> None:
    config = config_of(home)
    config.write_text(CONFIG + "# " + "x" * 60_000 + "\n")
    before = config.read_text()
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "pointsman", "import", "--yes"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    assert config.read_text() == before
    assert [path.name for path in config.parent.iterdir()] == ["pointsman.yaml"]


async def test_a_running_gateway_starts_the_imported_server(tmp_path: Path) -> None:
    cursor = tmp_path / ".cursor/mcp.json"
    cursor.parent.mkdir()
    entry = {"command": sys.executable, "args": [str(CLOCK)], "env": {"CLOCK_TOKEN": SECRET}}
    cursor.write_text(json.dumps({"mcpServers": {"clock": entry}}))
    async with gateway_process(tmp_path, {"servers": {}}) as gateway:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "pointsman", "import", "--yes"),
            *("--config", str(gateway.config_file), "--state-dir", str(gateway.state_dir)),
            cwd=tmp_path,
            env=own_environment(tmp_path),
            stderr=asyncio.subprocess.PIPE,
        )
        _, said = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == 0
        assert b"The gateway starts them now: `pointsman status` shows which run" in said
        await gateway.until_logged("server clock is running")
