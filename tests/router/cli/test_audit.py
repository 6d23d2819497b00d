"""`pointsman audit`, run as a person runs it."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pointsman.router.audit.database import FILE
from pointsman.router.audit.journal import Journal
from pointsman.router.audit.log import AuditLog
from pointsman.router.audit.segments import FOLDER
from pointsman.router.audit.store import Store
from pointsman.router.cli.main import main
from pointsman.router.serving.state_folder import locked, replica_folder
from tests.router.audit.samples import recording_arguments, request


@pytest.fixture
def log(tmp_path: Path) -> AuditLog:
    """A gateway's log with four rows, one of them in the database already."""
    journal = Journal(tmp_path / FOLDER)
    log = AuditLog(journal)
    log.begin(request("r1"), "discovery", queries=["what time is it"]).finish(
        "ok", results=2, bytes=900, provider="bm25", fallback=False
    )
    log.housekeep()
    store = Store(tmp_path / FILE)
    store.move(tmp_path / FOLDER, journal.position)
    store.close()
    log.begin(request("r2"), "execute", tool_key="time:now", server_id="time").finish("ok", results=1, bytes=30)
    log.begin(request("r3", token="phone"), "execute", tool_key="git:log", server_id="git").finish("timeout", "timeout")
    log.record_refusal(
        "unauthorized", kind="execute", method="tools/call", token_id=None, client="curl", request_id="r4"
    )
    return log


def run(state_dir: Path, *arguments: str) -> Result:
    return CliRunner(env={"POINTSMAN_STATE_DIR": str(state_dir)}).invoke(main, ["audit", *arguments])


def ids(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    return [json.loads(line)["requestId"] for line in result.stdout.splitlines()]


@pytest.mark.usefixtures("log")
def test_list_prints_all_rows_oldest_first(tmp_path: Path) -> None:
    assert ids(run(tmp_path, "list", "--json")) == ["r1", "r2", "r3", "r4"]


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--token laptop", ["r1", "r2"]),
        ("--project research", ["r1", "r2", "r3"]),
        ("--tool git:log", ["r3"]),
        ("--server time", ["r2"]),
        ("--kind discovery", ["r1"]),
        ("--outcome denied", ["r4"]),
        ("--code timeout", ["r3"]),
        ("--since 1h", ["r1", "r2", "r3", "r4"]),
        ("--until 1h", []),
        ("--since 2000-01-01 --until 2000-01-02T00:00:00Z", []),
        ("--limit 2", ["r3", "r4"]),
        ("--kind execute --outcome ok", ["r2"]),
    ],
)
def test_filters(tmp_path: Path, options: str, expected: list[str]) -> None:
    assert ids(run(tmp_path, "list", "--json", *options.split())) == expected


@pytest.mark.usefixtures("log")
def test_people_get_a_table(tmp_path: Path) -> None:
    lines = run(tmp_path, "list").stdout.splitlines()
    assert lines[0].split() == ["TIME", "OUTCOME", "MS", "TOKEN", "PROJECT", "CLIENT", "WHAT"]
    assert lines[1].endswith("“what time is it”")
    assert lines[2].endswith("time:now")
    assert "[timeout] git:log" in lines[3]
    assert "[unauthorized]" in lines[4]
    assert len({line.index(word) for line, word in zip(lines[1:4], ("“what", "time:", "[timeout"), strict=True)}) == 1


@pytest.mark.usefixtures("log")
def test_the_option_beats_the_environment(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    assert ids(run(other, "list", "--json", "--state-dir", str(tmp_path))) == ["r1", "r2", "r3", "r4"]


@pytest.mark.usefixtures("log")
def test_tail_prints_the_newest(tmp_path: Path) -> None:
    assert ids(run(tmp_path, "tail", "--json", "-n", "2")) == ["r3", "r4"]


def test_tail_follows_until_it_is_interrupted(tmp_path: Path, log: AuditLog) -> None:
    command = [sys.executable, "-P", "-m", "pointsman", "audit", "tail"]
    command += ["--json", "-f", "-n", "1", "--kind", "execute"]
    environment = {**os.environ, "POINTSMAN_STATE_DIR": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True) as tail:
        assert tail.stdout is not None
        assert tail.stderr is not None
        assert json.loads(tail.stdout.readline())["requestId"] == "r4"
        log.begin(request("not asked for"), "discovery", queries=[]).finish("ok")
        log.begin(request("r5"), "execute").finish("ok")
        assert json.loads(tail.stdout.readline())["requestId"] == "r5"
        tail.send_signal(signal.SIGINT)
        assert tail.wait(10) == 0
        assert tail.stderr.read() == ""


def test_a_long_list_comes_while_it_is_read_whether_rows_are_moved_or_not(tmp_path: Path) -> None:
    peaks = []
    for count in (2_000, 40_000):
        folder = tmp_path / str(count)
        _fill(folder, in_database=count, in_journal=500)
        with _listing(folder) as listing:
            assert listing.stdout is not None
            seqs = [json.loads(line)["seq"] for line in listing.stdout]
            _, status, used = os.wait4(listing.pid, 0)
            listing.returncode = os.waitstatus_to_exitcode(status)
        assert (listing.returncode, seqs) == (0, list(range(1, count + 501)))
        peaks.append(used.ru_maxrss / 1024)
    assert peaks[1] - peaks[0] < 10  # MB; the rows have 16


@pytest.mark.parametrize("options", [("--json",), ()], ids=["json", "table"])
def test_a_reader_that_has_enough_ends_the_list_quietly(tmp_path: Path, options: tuple[str, ...]) -> None:
    _fill(tmp_path, in_database=20_000, in_journal=10)
    with _listing(tmp_path, *options) as listing:
        assert listing.stdout is not None
        assert listing.stderr is not None
        assert listing.stdout.readline()
        listing.stdout.close()
        assert (listing.wait(30), listing.stderr.read()) == (128 + signal.SIGPIPE, "")


def _listing(state_dir: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-P", "-m", "pointsman", "audit", "list", *(options or ("--json",))]
    environment = {**os.environ, "POINTSMAN_STATE_DIR": str(state_dir)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True)


def _fill(state_dir: Path, *, in_database: int, in_journal: int) -> None:
    """The rows of a gateway that has ended, with about 400 bytes of arguments each."""
    state_dir.mkdir(exist_ok=True)
    journal = Journal(state_dir / FOLDER)
    log = AuditLog(journal, recording_arguments())
    store = Store(state_dir / FILE)
    for rows in (in_database, in_journal):
        for number in range(rows):
            caller = request(f"r{number}", token=f"token{number % 500}")  # each has its own rate limit
            log.begin(caller, "execute", tool_key="a:x", arguments={"text": "x" * 400}).finish("ok", results=1)
        if rows is in_database:
            log.housekeep()
            store.move(state_dir / FOLDER, journal.position)
    store.close()
    log.close()


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize("command", [("tail", "-n"), ("list", "--limit")])
def test_more_rows_than_there_can_be_are_all_of_them(command: tuple[str, str], tmp_path: Path) -> None:
    assert ids(run(tmp_path, *command, "9" * 20, "--json")) == ["r1", "r2", "r3", "r4"]


def test_nothing_found_is_said_on_stderr_only(tmp_path: Path) -> None:
    result = run(tmp_path, "list")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "No matching audit rows" in result.stderr


def test_nothing_found_without_a_gateway_says_where_was_looked_for_a_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POINTSMAN_CONFIG_DIR", str(tmp_path / "own"))
    said = run(tmp_path, "list").stderr
    assert "No gateway runs, and there is no configuration" in said
    assert f"(./pointsman.yaml and {tmp_path / 'own' / 'pointsman.yaml'})" in said
    assert "--config FILE" in said
    config = tmp_path / "pointsman.yaml"
    config.write_text("{}")
    said = run(tmp_path, "list").stderr
    assert f"No gateway runs, and {config} names no database; --config FILE names another configuration." in said
    assert run(tmp_path, "list", "--config", str(config)).stderr == f"No matching audit rows in {tmp_path}.\n"


def test_a_folder_that_does_not_exist_is_named_with_the_next_step(tmp_path: Path) -> None:
    result = run(tmp_path / "nowhere", "list")
    assert result.exit_code == 2
    assert "nowhere" in result.stderr
    assert "--state-dir" in result.stderr


def test_the_folder_of_one_replica_is_refused_with_the_one_of_all(tmp_path: Path) -> None:
    with locked(tmp_path, shared=True), replica_folder(tmp_path) as own:
        pass
    said = f"{own} is the folder of one replica. The state of all of them is in {tmp_path}: pass that one with"
    before = sorted(own.iterdir())
    for command in (("audit", "list"), ("state", "copy", "--to", "postgresql://me@127.0.0.1:1/x"), ("serve",)):
        done = subprocess.run(
            [sys.executable, "-P", "-m", "pointsman", *command, "--state-dir", str(own)],
            env={**os.environ, "POINTSMAN_CONFIG_DIR": str(tmp_path), "POINTSMAN_PORT": "0"},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert done.returncode in (1, 2), done
        assert said in done.stderr
    assert sorted(own.iterdir()) == before
    assert run(tmp_path, "list").exit_code == 0
    alike = tmp_path / "other" / "replicas" / "2"  # not below a state folder
    alike.mkdir(parents=True)
    assert run(alike, "list").exit_code == 0


def test_a_time_that_is_none_is_explained(tmp_path: Path) -> None:
    result = run(tmp_path, "list", "--since", "yesterday")
    assert result.exit_code == 2
    assert "`yesterday` is neither a time span (15m" in result.stderr


@pytest.mark.usefixtures("log")
def test_a_database_that_cannot_be_read_is_told_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"no database" * 100)
    result = run(tmp_path, "list")
    assert result.exit_code == 1
    assert result.stderr.startswith("Could not read the state database")


def test_a_newer_database_is_told_in_a_sentence(tmp_path: Path) -> None:
    newer = sqlite3.connect(tmp_path / FILE)
    newer.execute("PRAGMA user_version = 999")
    newer.close()
    result = run(tmp_path, "list")
    assert result.exit_code == 1
    assert "newer Pointsman" in result.stderr
