"""The stderr of child processes: the last 64 KiB of each server, in memory and in the state folder.

`pointsman server log` shows the file.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from pointsman.config.secrets import MASK, mask_secrets
from pointsman.providers.visible import visible
from pointsman.router.downstream.repeated_failures import RepeatedFailures

logger = logging.getLogger(__name__)

RING_BYTES = 64 * 1024
FOLDER = "logs"
STDOUT = b"[stdout] "  # before a line that a server wrote to stdout and that is not MCP
_WRITE_EVERY_S = 0.5
_MARK_EVERY_S = 0.5
_MAX_MARKS = 32
_LAST_LINES = 60  # kept of a run that has ended
_LINE_SHOWN = 500
_CONTROLS = dict.fromkeys((*range(0x20), *range(0x7F, 0xA0)), "�")
# Direction marks and line separators could forge the content of a log line.
_CONTROLS |= dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x2028, 0x2029, 0x200E, 0x200F), "�")
_CONTROLS[9] = " "


def sanitize(text: str, limit: int = _LINE_SHOWN) -> str:
    """Return one line that cannot move the cursor, forge another line, hide text or fill a page."""
    cut = visible(text[: limit + 1].translate(_CONTROLS))
    return cut if len(cut) <= limit else cut[:limit] + "…"


class StderrLog:
    """A ring buffer of bytes. Drops whole chunks at its far end, so that a flood costs almost nothing."""

    def __init__(
        self, name: str = "", limit_bytes: int = RING_BYTES, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.name = name  # of the server
        self._monotonic = monotonic
        self._marks: deque[tuple[float, int]] = deque(maxlen=_MAX_MARKS)  # when, and `total` before what came then
        self._limit = limit_bytes
        self._chunks: deque[bytes] = deque()
        self._held = 0
        self.total = 0  # bytes received in all
        self.failures = RepeatedFailures()  # of its children, as logged
        self.last_cause = ""  # why the last child ended, in its own words; for the operator only
        self.last_output: tuple[str, ...] = ()  # the lines from which `last_cause` was taken
        self.hidden: tuple[str, ...] = ()  # values of its entry that are masked wherever it writes them

    def feed(self, data: bytes) -> None:
        now = self._monotonic()
        if not self._marks or now - self._marks[-1][0] >= _MARK_EVERY_S:
            self._marks.append((now, self.total))
        self.total += len(data)
        if len(data) >= self._limit:
            self._chunks.clear()
            self._chunks.append(data[-self._limit :])
            self._held = self._limit
            return
        if self._chunks and len(self._chunks[-1]) + len(data) <= 1024:
            self._chunks[-1] += data  # so that many tiny writes do not become many objects
        else:
            self._chunks.append(data)
        self._held += len(data)
        while self._held > self._limit:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        oldest = self._chunks.popleft()
        surplus = self._held - self._limit
        if len(oldest) > surplus:
            self._chunks.appendleft(oldest[surplus:])
            self._held -= surplus
        else:
            self._held -= len(oldest)

    def tail(self, lines: int) -> list[str]:
        return last_lines(mask_output(self.content(), self.hidden), lines)

    def content(self) -> bytes:
        """All bytes in the buffer, as they came; of a line whose begin was dropped, nothing."""
        data = b"".join(self._chunks)
        return data.partition(b"\n")[2] or data if self.total > self._held else data

    def last_line(self) -> str:
        return next(iter(self.tail(1)), "")

    def feed_stdout(self, line: bytes) -> None:
        """Add a line that the server wrote to stdout, marked as such."""
        begun = self._chunks and not self._chunks[-1].endswith(b"\n")
        self.feed((b"\n" if begun else b"") + STDOUT + line + b"\n")

    def total_before(self, seconds: float) -> int:
        """`total` as it was that long ago, to within half a second."""
        earliest = self._monotonic() - seconds
        return next((total for moment, total in self._marks if moment >= earliest), self.total)

    def cause(self, since: int = 0) -> str:
        """The line that says why a child failed, of what came after `total` was `since`; empty: there is none."""
        return cause_of(self._written_since(since))

    def run_ended(self, since: int, cause: str) -> None:
        """Keep why a child ended, and what it wrote after `total` was `since`."""
        self.last_cause, self.last_output = cause, tuple(last_lines(self._written_since(since), _LAST_LINES))

    def forget_last_run(self) -> None:
        """What an earlier child wrote explains nothing any more."""
        self.last_cause, self.last_output = "", ()

    def _written_since(self, since: int) -> bytes:
        fresh = min(self.total - since, self._held)
        return mask_output(self.content()[-fresh:], self.hidden) if fresh > 0 else b""


def mask_output(data: bytes, hidden: Sequence[str]) -> bytes:
    """Mask these values, and everything that looks like a secret."""
    for value in hidden:
        data = data.replace(value.encode(errors="surrogateescape"), MASK.encode())
    return mask_secrets(data.decode(errors="surrogateescape")).encode(errors="surrogateescape")


def last_lines(data: bytes, lines: int) -> list[str]:
    """The last `lines` lines that are not blank, oldest first, sanitized."""
    if lines <= 0:
        return []
    written = [line for line in data.splitlines() if line.strip()]
    return [sanitize(line.decode(errors="replace").strip()) for line in written[-lines:]]


def cause_of(data: bytes) -> str:
    """The first line that says error or cause, with the innermost cause that follows it; else the last line.

    The last line alone is often a hint (`hint: ...`) or the place of a complete log (npm).
    """
    lines = [line for line in data.splitlines() if line.strip() and not line.startswith(STDOUT)]
    if len(lines) > 2 * _LINES_READ:
        lines = lines[:_LINES_READ] + lines[-_LINES_READ:]
    texts = [line[:_LINE_READ].decode(errors="replace").rstrip() for line in lines]
    if any(text.startswith("Traceback (most recent call last)") for text in texts):
        texts = [text for text in texts if not text.startswith(("  ", "Traceback"))] or texts
    first = next(
        (index for index, text in enumerate(texts) if _SAYS_ERROR.search(text) and not _ASIDE.match(text)), None
    )
    if first is None:
        return mask_secrets(sanitize(texts[-1].strip())) if texts else ""
    inner = [_MARKS.sub("", text) for text in texts[first + 1 :] if _INNER_CAUSE.match(text)]
    shown = ": ".join([_MARKS.sub("", texts[first]), *inner[-1:]])
    return mask_secrets(sanitize(shown))


_LINES_READ = 200  # from either end: a flood of lines must not cost time when the child ends
_LINE_READ = 2000
_SAYS_ERROR = re.compile(
    r"(?i)(?<![\w./-])(?:[\w.]*error|[\w.]*exception|err!|fatal|panicked|failed|failure|cannot|could not|unable to|"
    r"caused by|not found|denied|refused|invalid)(?!\w|[./-]\w)|^\s*[\u00d7\u2717]"
)
_ASIDE = re.compile(
    r"(?i)\s*(?:hint|help|note|tip|warning|warn|info|debug)\b|npm (?:error|err!) (?:code|errno|syscall|path)\b"
)
_INNER_CAUSE = re.compile(r"(?i)\s*(?:[├╰│└]|caused? ?(?:by)?:)")
_MARKS = re.compile(r"(?i)^[\s\u00d7\u2717├╰│└─▶>]*(?:caused? ?(?:by)?:\s*)?")  # with the crosses that uv and npm print


class ServerLogs:
    """One bounded log per server, which outlives its children. A flood costs one small file write every half second."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._places: dict[str, Path] = {}
        self._logs: dict[str, StderrLog] = {}
        self._written: dict[str, int] = {}  # `total` of the log when its file was written
        self._warned = False

    def of(self, server_id: str) -> StderrLog:
        return self._logs.setdefault(server_id, StderrLog(server_id))

    def place(self, server_id: str, state_dir: Path | None) -> None:
        """Write the file of a server to another state folder: that of all workers; None: to our own."""
        self._places[server_id] = state_dir or self._state_dir

    async def run(self) -> None:
        """Write new output to the files until cancelled, and once more then."""
        try:
            while True:
                await asyncio.sleep(_WRITE_EVERY_S)
                if fresh := self._fresh():
                    await asyncio.to_thread(self._write, fresh)
        finally:
            self._write(self._fresh())

    async def flush(self) -> None:
        """Write new output to the files now."""
        await asyncio.to_thread(self._write, self._fresh())

    def _fresh(self) -> dict[str, tuple[bytes, Sequence[str]]]:
        """The output of each log that has grown, and the values to mask in it."""
        fresh = {
            server_id: log for server_id, log in self._logs.items() if log.total != self._written.get(server_id, 0)
        }
        self._written.update({server_id: log.total for server_id, log in fresh.items()})
        return {server_id: (log.content(), log.hidden) for server_id, log in fresh.items()}

    def _write(self, fresh: dict[str, tuple[bytes, Sequence[str]]]) -> None:
        try:
            for server_id, (data, hidden) in fresh.items():
                _replace(log_file(self._places.get(server_id, self._state_dir), server_id), mask_output(data, hidden))
        except OSError as error:
            if not self._warned:  # a full disk must not fill the log as well
                logger.warning("could not write the servers' logs: %s", error.strerror)
            self._warned = True
        else:
            self._warned = False


def log_file(state_dir: Path, server_id: str) -> Path:
    return state_dir / FOLDER / f"{server_id}.log"


def _replace(path: Path, data: bytes) -> None:
    path.parent.mkdir(mode=0o700, exist_ok=True)
    fresh = path.with_suffix(".new")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    fresh.replace(path)
