"""The parser process: replaced after a crash, killed after a timeout, stopped with the archive."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pointsman.archive.code.imports.parser import ImportParser, ParseError
from pointsman.archive.code.imports.syntax import READY, Import

LIMIT_S = 60
SOURCE = b"import a\n"


@pytest.fixture
def own() -> Iterator[ImportParser]:
    parser = ImportParser(timeout_s=LIMIT_S)
    yield parser
    parser.close()


def process_of(parser: ImportParser) -> subprocess.Popen[bytes]:
    assert parser._worker is not None
    return parser._worker._process


def program(*lines: str) -> tuple[str, ...]:
    """A parser that says it is ready and then does something else."""
    ready = f"import os, sys, signal; os.write(1, {READY!r})"
    return (sys.executable, "-c", "; ".join((ready, *lines)))


def test_one_process_serves_many_files(own: ImportParser) -> None:
    first = own.parse("python", b"import a")
    process = process_of(own)
    assert own.parse("python", b"import b").imports == (Import("import", "b"),)
    assert first.imports == (Import("import", "a"),)
    assert process_of(own) is process


def test_a_process_that_was_killed_is_replaced_unnoticed(own: ImportParser) -> None:
    own.parse("python", b"import a")
    killed = process_of(own)
    killed.kill()
    killed.wait()
    assert own.parse("python", b"import b").imports == (Import("import", "b"),)


def test_what_is_known_needs_no_process(own: ImportParser) -> None:
    known = own.parse("python", SOURCE)
    own.close()
    assert own.parse("python", SOURCE) is known
    with pytest.raises(ParseError, match="closing"):
        own.parse("typescript", SOURCE)  # the same bytes in another language are another file


def test_a_parser_that_never_answers_is_ended() -> None:
    parser = ImportParser(timeout_s=0.1, command=program("signal.pause()"))
    with pytest.raises(ParseError, match="took too long"):
        parser.parse("python", SOURCE)
    assert parser._worker is None
    parser.close()


def test_a_stopped_process_costs_one_answer_only() -> None:
    parser = ImportParser(timeout_s=LIMIT_S)
    parser.parse("python", b"import a")
    stopped = process_of(parser)
    stopped.send_signal(signal.SIGSTOP)
    parser._timeout_s = 0.1
    with pytest.raises(ParseError, match="took too long"):
        parser.parse("python", b"import b")
    assert stopped.returncode is not None
    parser._timeout_s = LIMIT_S
    assert parser.parse("python", b"import b").imports == (Import("import", "b"),)
    parser.close()


def test_a_file_that_kills_the_parser_is_remembered_and_not_tried_again(tmp_path: Path) -> None:
    births = tmp_path / "births"
    born = f"open({str(births)!r}, 'a').write('x')"
    parser = ImportParser(timeout_s=LIMIT_S, command=program(born, "sys.stdin.buffer.read(4)", "os.abort()"))
    for _ in range(3):
        with pytest.raises(ParseError, match="crashed on this file"):
            parser.parse("python", SOURCE)
    assert births.read_text() == "xx"  # it was given a second chance, and no third
    parser.close()


def test_a_file_that_takes_too_long_twice_is_not_tried_a_third_time(tmp_path: Path) -> None:
    births = tmp_path / "births"
    born = f"open({str(births)!r}, 'a').write('x')"
    parser = ImportParser(timeout_s=LIMIT_S, command=(*program()[:2], f"{born}; {program('signal.pause()')[2]}"))
    parser._timeout_s = 0.1
    for _ in range(4):
        with pytest.raises(ParseError, match="took too long"):
            parser.parse("python", SOURCE)
    assert births.read_text() == "xx"
    parser.close()


def test_what_is_known_does_not_wait_for_a_parse_that_takes_long(own: ImportParser) -> None:
    known = own.parse("python", SOURCE)
    own._timeout_s = 0.0
    with own._worker_lock:  # as held by a parse that is under way
        assert own.parse("python", SOURCE) is known
        with pytest.raises(ParseError, match="busy"):
            own.parse("python", b"import b")


@pytest.mark.parametrize("command", [("/no/such/program",), (sys.executable, "-c", "pass")])
def test_a_parser_that_cannot_be_started_says_so(command: tuple[str, ...]) -> None:
    with pytest.raises(ParseError, match="could not be started"):
        ImportParser(timeout_s=LIMIT_S, command=command).parse("python", SOURCE)


def test_many_threads_may_ask_at_once(own: ImportParser) -> None:
    answers: dict[int, tuple[Import, ...]] = {}

    def ask(number: int) -> None:
        answers[number] = own.parse("python", f"import m{number % 5}".encode()).imports

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {number: (Import("import", f"m{number % 5}"),) for number in range(20)}


def test_closing_ends_the_process(own: ImportParser) -> None:
    own.parse("python", SOURCE)
    process = process_of(own)
    own.close()
    assert process.returncode is not None


def test_the_process_ends_when_its_archive_is_killed() -> None:
    script = (
        "import sys; from pointsman.archive.code.imports.parser import ImportParser; p = ImportParser(60); "
        "p.parse('python', b'import a'); print(p._worker._process.pid, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-P", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as archive:
        assert archive.stdout is not None
        pid = int(archive.stdout.readline())
        archive.kill()
    deadline = time.monotonic() + LIMIT_S
    while alive(pid):
        assert time.monotonic() < deadline, "the parser outlived its archive"
        threading.Event().wait(0.05)


def alive(pid: int) -> bool:
    """Whoever takes in orphans may be slow to bury them: a dead one does not count."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
