"""The log file: bounded, private, masked, and nothing that it meets on the disk disturbs the daemon."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pointsman.config.model import Log
from pointsman.router.serving.log_file import FORMAT, MAX_CHARS, LogFile, PlainLogFile, log_path, numbered
from tests.gateway_process import gateway_process
from tests.router.cli.commands import run

LIMIT_S = 30.0  # a bound against hanging


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return log_path(tmp_path)


def record(text: str) -> logging.LogRecord:
    return logging.LogRecord("pointsman", logging.INFO, "", 0, "%s", (text,), None)


def written(file: Path) -> Iterator[str]:
    """The messages of all files, oldest first."""
    found = sorted(file.parent.glob(f"{file.name}*"), key=lambda each: -int(each.suffix[1:] if each != file else 0))
    for each in found:
        yield from (line.partition("INFO    ")[2] or line for line in each.read_text().splitlines())


def test_size_and_number_of_the_files_are_bounded(tmp_path: Path, file: Path) -> None:
    handler = LogFile(tmp_path, Log(max_bytes=4096, files=3))
    for number in range(1000):
        handler.handle(record(f"line {number} {'x' * 100}"))
        time.sleep(0)
    handler.handle(record("z" * 100_000))
    handler.close()
    files = [file, numbered(file, 1), numbered(file, 2)]
    assert sorted(file.parent.iterdir()) == files
    assert all(each.stat().st_size <= 4096 and each.stat().st_mode & 0o777 == 0o600 for each in files)
    assert file.parent.stat().st_mode & 0o777 == 0o700
    lines = list(written(file))
    assert set(lines[-1]) == {"z"}
    numbers = [int(line.split()[1]) for line in lines if line.startswith("line ")]
    assert numbers == list(range(numbers[0], 1000))


def test_fewer_files_are_kept_after_a_reload(tmp_path: Path, file: Path) -> None:
    handler = LogFile(tmp_path, Log(max_bytes=4096, files=5))
    for _ in range(10):
        handler.handle(record("x" * 3000))
    handler.configure(Log(max_bytes=4096, files=1))
    handler.handle(record("y" * 3000))
    handler.close()
    assert list(file.parent.iterdir()) == [file]
    handler = LogFile(tmp_path, Log(file=False))
    handler.handle(record("nothing"))
    handler.close()
    assert "nothing" not in file.read_text()


def test_a_flood_costs_lines_and_says_how_many(tmp_path: Path, file: Path) -> None:
    handler = LogFile(tmp_path, Log(max_bytes=1 << 30))
    for number in range(50_000):
        handler.handle(record(f"line {number}"))
    handler.handle(record("the end"))
    handler.close()
    lines = list(written(file))
    missing = sum(int(found[1]) for line in lines if (found := re.search(r"WARNING (\d+) earlier lines", line)))
    assert sum(line.startswith(("line ", "the end")) for line in lines) + missing == 50_001


def test_secrets_are_masked_and_a_traceback_stays_with_its_message(tmp_path: Path, file: Path) -> None:
    handler = LogFile(tmp_path, Log())
    handler.handle(record(f"the token is ptm_{'s' * 43}, the header Authorization: Bearer abcdefghijkl"))
    try:
        raise ValueError("password=hunter22")
    except ValueError:
        failure = logging.LogRecord("pointsman", logging.ERROR, "", 0, "%s", ("it failed",), sys.exc_info())
    handler.handle(failure)
    handler.handle(record("x" * (2 * MAX_CHARS)))
    handler.close()
    text = file.read_text()
    assert all(secret not in text for secret in ("ssss", "abcdefghijkl", "hunter22"))
    assert "ERROR   it failed\nTraceback (most recent call last):" in text
    assert len(text) < MAX_CHARS + 2000


@pytest.mark.parametrize("obstacle", ["file", "fifo", "link"])
def test_what_cannot_be_written_costs_one_warning_and_is_tried_again(
    tmp_path: Path, file: Path, obstacle: str, caplog: pytest.LogCaptureFixture
) -> None:
    if obstacle == "file":
        file.parent.write_text("no folder")
    else:
        file.parent.mkdir()
        os.mkfifo(file) if obstacle == "fifo" else file.symlink_to(tmp_path / "elsewhere")
    handler = LogFile(tmp_path, Log(), retry_s=0.0)
    for number in range(20):
        handler.handle(record(f"line {number}"))
        time.sleep(0.005)
    deadline = time.monotonic() + LIMIT_S
    while not caplog.records and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not (tmp_path / "elsewhere").exists()
    (file.parent if obstacle == "file" else file).unlink()
    while not (file.exists() and "after" in file.read_text()) and time.monotonic() < deadline:
        handler.handle(record("after"))
        time.sleep(0.02)
    handler.close()
    [warning] = [each.getMessage() for each in caplog.records if "could not write the log file" in each.getMessage()]
    assert warning.endswith("messages go to stderr only")
    assert re.search(r"WARNING \d+ earlier lines are missing", file.read_text())


FULL = """
import logging, resource, sys, time
from pathlib import Path
from pointsman.config.model import Log
from pointsman.router.serving.log_file import LogFile, log_path
logging.basicConfig(format="%(message)s")
folder = Path(sys.argv[1])
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, most))
handler = LogFile(folder, Log(), retry_s=0.0)
def say(text):
    handler.handle(logging.LogRecord("pointsman", logging.INFO, "", 0, text, (), None))
for number in range(100):
    say(f"line {number}")
    time.sleep(0.002)
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
say("there is room again")
handler.close()
print(log_path(folder).read_text())
"""


def test_a_full_disk_leaves_no_half_line_and_the_log_goes_on_when_there_is_room(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, timeout=LIMIT_S, check=True
    )
    assert done.stderr.count("could not write the log file") == 1
    *before, missing, last = done.stdout.split("\n")[:-2]
    assert before
    assert all(re.fullmatch(r"\S+ INFO    line \d+", line) for line in before)
    assert int(re.search(r"WARNING (\d+) earlier lines", missing)[1]) == 100 - len(before)  # type: ignore[index]
    assert last.endswith("there is room again")


def test_a_file_that_was_moved_away_is_begun_anew(tmp_path: Path, file: Path) -> None:
    handler = LogFile(tmp_path, Log())
    handler.handle(record("before"))
    deadline = time.monotonic() + LIMIT_S
    while not (file.exists() and file.read_text()) and time.monotonic() < deadline:
        time.sleep(0.01)
    file.rename(file.with_suffix(".old"))
    handler.handle(record("after"))
    handler.close()
    assert [list(written(file)), "before" in file.with_suffix(".old").read_text()] == [["after"], True]


async def test_the_log_of_a_gateway_is_in_its_state_folder_and_has_no_token(tmp_path: Path) -> None:
    assert FORMAT.endswith("%(levelname)-7s %(message)s")  # as on stderr, with the date
    absent = await run(tmp_path, "log")
    assert absent.code == 1
    assert "log: {file: false}" in absent.stderr
    async with gateway_process(tmp_path, {"servers": {}}) as gateway:
        await gateway.until_logged("pointsman has ")
        gateway.write_config({"servers": {}, "log": {"file": False}})
        await gateway.until_logged("configuration reloaded")
    shown = await run(tmp_path, "log", "--json")
    messages = [line.split('"message": "')[1] for line in shown.stdout.splitlines()]
    assert f"ready on {gateway.url}" in messages[0]
    assert any(each.startswith("pointsman has no servers") for each in messages)
    assert not any("configuration reloaded" in each for each in messages)  # from then on, only stderr
    text = log_path(gateway.state_dir).read_text()
    assert "ptm_" not in text
    assert (await run(tmp_path, "log", "-n", "1")).stdout == text.splitlines(keepends=True)[-1]


def test_the_log_file_of_the_parent_is_bounded_and_survives_a_disk_that_refuses(tmp_path: Path, file: Path) -> None:
    handler = PlainLogFile(tmp_path, Log(max_bytes=4096, files=2), retry_s=0.0)
    for number in range(200):
        handler.handle(record(f"line {number}"))
    file.unlink()
    file.mkdir()  # it cannot be opened
    handler.say("lost")
    file.rmdir()
    handler.say("found")
    handler.close()
    text = file.read_text()
    assert "1 earlier lines are missing" in text
    assert "found" in text
    assert {each.name for each in file.parent.iterdir()} == {"pointsman.log", "pointsman.log.1"}
    assert file.with_name("pointsman.log.1").stat().st_size <= 4096
