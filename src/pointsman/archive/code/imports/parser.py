"""The archive's side of the parser: one long-lived process, replaced when it dies or takes too long, and a cache."""

from __future__ import annotations

import hashlib
import logging
import os
import selectors
import subprocess
import sys
import threading
import time
from collections import OrderedDict

import msgspec

from pointsman.archive.code.imports.syntax import READY, Parsed, Question

logger = logging.getLogger(__name__)

_COMMAND = (sys.executable, "-P", "-m", "pointsman.archive.code.imports.parse_worker")
_REMEMBERED = 1_000
_START_S = 30.0  # loading takes a moment once, which no file is to blame for
_TOO_LONG = "parsing took too long"
_ATTEMPTS = 2  # the first may have found a process that was ended for another file, or from outside


class ParseError(Exception):
    """The parser gave no answer; the message says why."""


class ParseTimeoutError(ParseError):
    """It gave none in time."""


class _WorkerDiedError(Exception):
    pass


class ImportParser:
    """Parses in a process of its own, one file at a time. Safe to use from many threads."""

    def __init__(self, timeout_s: float = 5.0, command: tuple[str, ...] = _COMMAND) -> None:
        self._timeout_s = timeout_s
        self._command = command
        self._turn = threading.Lock()
        self._worker: _Worker | None = None
        self._closed = False
        self._memory = threading.Lock()  # of its own: what is known does not wait for a parse that takes long
        self._known: OrderedDict[bytes, Parsed | str] = OrderedDict()  # a text: why it is not tried again
        self._late: set[bytes] = set()  # took too long once, which may have been the machine

    def parse(self, grammar: str, source: bytes) -> Parsed:
        """What the source imports.

        Raises:
            ParseError: the parser crashed on it, took too long, or is closed.
        """
        key = hashlib.sha256(grammar.encode() + b"\0" + source).digest()
        known = self._recalled(key)
        if known is None:
            known = self._parsed(key, Question(grammar, source))
        if isinstance(known, str):
            raise ParseTimeoutError(known) if known == _TOO_LONG else ParseError(known)
        return known

    def close(self) -> None:
        """End the process. Waits for a parse that is under way, which has its own limit."""
        with self._turn:
            self._closed = True
            self._end()

    def _parsed(self, key: bytes, question: Question) -> Parsed | str:
        if not self._turn.acquire(timeout=self._timeout_s):
            raise ParseTimeoutError("the parser is busy")
        try:
            known = self._recalled(key)  # by whoever had the turn before
            if known is None:
                known = self._ask(key, question)
                self._remember(key, known)
            return known
        finally:
            self._turn.release()

    def _ask(self, key: bytes, question: Question) -> Parsed | str:
        """A text, which says why, where the same file has failed twice."""
        if self._closed:
            raise ParseError("the archive is being closed")
        for _ in range(_ATTEMPTS):
            self._worker = self._worker or self._started()
            try:
                return self._worker.ask(question, time.monotonic() + self._timeout_s)
            except _WorkerDiedError:
                self._end()
                logger.warning("the parser died over %d bytes of %s", len(question.source), question.grammar)
            except TimeoutError:
                self._end()
                logger.warning("the parser was ended over %d bytes of %s", len(question.source), question.grammar)
                if key in self._late:
                    return _TOO_LONG
                if len(self._late) >= _REMEMBERED:
                    self._late.clear()
                self._late.add(key)
                raise ParseTimeoutError(_TOO_LONG) from None
        return "the parser crashed on this file"

    def _started(self) -> _Worker:
        try:
            return _Worker(self._command)
        except (OSError, _WorkerDiedError):
            raise ParseError("the parser could not be started") from None

    def _recalled(self, key: bytes) -> Parsed | str | None:
        with self._memory:
            if key in self._known:
                self._known.move_to_end(key)
            return self._known.get(key)

    def _remember(self, key: bytes, parsed: Parsed | str) -> None:
        with self._memory:
            self._known[key] = parsed
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)

    def _end(self) -> None:
        if self._worker is not None:
            self._worker.end()
            self._worker = None


class _Worker:
    """One process and its two pipes, read and written without ever waiting past a deadline."""

    def __init__(self, command: tuple[str, ...]) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - a fixed command of our own
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to, self._from = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._to, False)
        os.set_blocking(self._from, False)
        try:
            self._receive(len(READY), time.monotonic() + _START_S)
        except BaseException:
            self.end()
            raise

    def ask(self, question: Question, deadline: float) -> Parsed:
        body = msgspec.msgpack.encode(question)
        try:
            self._send(len(body).to_bytes(4) + body, deadline)
            size = int.from_bytes(self._receive(4, deadline))
            return msgspec.msgpack.decode(self._receive(size, deadline), type=Parsed)
        except (OSError, msgspec.DecodeError) as error:
            if isinstance(error, TimeoutError):
                raise
            raise _WorkerDiedError from error

    def end(self) -> None:
        self._process.kill()
        with self._process:  # closes the pipes and waits
            pass

    def _send(self, data: bytes, deadline: float) -> None:
        rest = memoryview(data)
        while rest:
            _await(self._to, selectors.EVENT_WRITE, deadline)
            rest = rest[os.write(self._to, rest) :]

    def _receive(self, size: int, deadline: float) -> bytes:
        data = b""
        while len(data) < size:
            _await(self._from, selectors.EVENT_READ, deadline)
            piece = os.read(self._from, size - len(data))
            if not piece:
                raise _WorkerDiedError
            data += piece
        return data


def _await(handle: int, event: int, deadline: float) -> None:
    with selectors.DefaultSelector() as selector:
        selector.register(handle, event)
        if not selector.select(max(0.0, deadline - time.monotonic())):
            raise TimeoutError
