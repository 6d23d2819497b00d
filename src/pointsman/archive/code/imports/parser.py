"""Parses imports in a child process, which is replaced when it dies or times out, and caches the results."""

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

from pointsman.archive.code.imports.syntax import READY, Parsed, ParseRequest

logger = logging.getLogger(__name__)

_COMMAND = (sys.executable, "-P", "-m", "pointsman.archive.code.imports.parse_worker")
_MOST_CACHED = 1_000
_START_S = 30.0  # the first start loads the grammars
_TOO_LONG = "parsing took too long"
_ATTEMPTS = 2  # the process may have died before this file


class ParseError(Exception):
    """The source could not be parsed; the message says why."""


class ParseTimeoutError(ParseError):
    """Parsing timed out."""


class _WorkerDiedError(Exception):
    pass


class ImportParser:
    """Parses one file at a time in a child process. Thread-safe."""

    def __init__(self, timeout_s: float = 5.0, command: tuple[str, ...] = _COMMAND) -> None:
        self._timeout_s = timeout_s
        self._command = command
        self._worker_lock = threading.Lock()
        self._worker: _Worker | None = None
        self._closed = False
        self._cache_lock = threading.Lock()  # separate, so that a cached result does not wait for a slow parse
        self._cache: OrderedDict[bytes, Parsed | str] = OrderedDict()  # a text: why it is not tried again
        self._timed_out_once: set[bytes] = set()  # retried, since the machine may have been busy

    def parse(self, grammar: str, source: bytes) -> Parsed:
        """The imports of a source file.

        Raises:
            ParseError: the parser crashed on it, took too long, or is closed.
        """
        key = hashlib.sha256(grammar.encode() + b"\0" + source).digest()
        result = self._cached(key)
        if result is None:
            result = self._parse(key, ParseRequest(grammar, source))
        if isinstance(result, str):
            raise ParseTimeoutError(result) if result == _TOO_LONG else ParseError(result)
        return result

    def close(self) -> None:
        """Stop the process. Waits for a parse that is under way, which has its own timeout."""
        with self._worker_lock:
            self._closed = True
            self._stop_worker()

    def _parse(self, key: bytes, request: ParseRequest) -> Parsed | str:
        if not self._worker_lock.acquire(timeout=self._timeout_s):
            raise ParseTimeoutError("the parser is busy")
        try:
            result = self._cached(key)  # another thread may have parsed it meanwhile
            if result is None:
                result = self._parse_in_worker(key, request)
                self._put_in_cache(key, result)
            return result
        finally:
            self._worker_lock.release()

    def _parse_in_worker(self, key: bytes, request: ParseRequest) -> Parsed | str:
        """A text, which says why, if the same file has failed twice."""
        if self._closed:
            raise ParseError("the archive is closing")
        for _ in range(_ATTEMPTS):
            self._worker = self._worker or self._start_worker()
            try:
                return self._worker.request(request, time.monotonic() + self._timeout_s)
            except _WorkerDiedError:
                self._stop_worker()
                logger.warning("import parser crashed on %d bytes of %s", len(request.source), request.grammar)
            except TimeoutError:
                self._stop_worker()
                logger.warning(
                    "import parser killed: timed out on %d bytes of %s", len(request.source), request.grammar
                )
                if key in self._timed_out_once:
                    return _TOO_LONG
                if len(self._timed_out_once) >= _MOST_CACHED:
                    self._timed_out_once.clear()
                self._timed_out_once.add(key)
                raise ParseTimeoutError(_TOO_LONG) from None
        return "the parser crashed on this file"

    def _start_worker(self) -> _Worker:
        try:
            return _Worker(self._command)
        except (OSError, _WorkerDiedError):
            raise ParseError("the parser could not be started") from None

    def _cached(self, key: bytes) -> Parsed | str | None:
        with self._cache_lock:
            if key in self._cache:
                self._cache.move_to_end(key)
            return self._cache.get(key)

    def _put_in_cache(self, key: bytes, parsed: Parsed | str) -> None:
        with self._cache_lock:
            self._cache[key] = parsed
            while len(self._cache) > _MOST_CACHED:
                self._cache.popitem(last=False)

    def _stop_worker(self) -> None:
        if self._worker is not None:
            self._worker.stop()
            self._worker = None


class _Worker:
    """One process and its two pipes; no read or write waits past its deadline."""

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
            self.stop()
            raise

    def request(self, request: ParseRequest, deadline: float) -> Parsed:
        body = msgspec.msgpack.encode(request)
        try:
            self._send(len(body).to_bytes(4) + body, deadline)
            size = int.from_bytes(self._receive(4, deadline))
            return msgspec.msgpack.decode(self._receive(size, deadline), type=Parsed)
        except (OSError, msgspec.DecodeError) as error:
            if isinstance(error, TimeoutError):
                raise
            raise _WorkerDiedError from error

    def stop(self) -> None:
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
