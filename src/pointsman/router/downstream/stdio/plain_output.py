"""What a server writes to stdout and is not MCP: the first lines are kept, for its log and as a reason."""

from __future__ import annotations

from pointsman.router.downstream.stderr_log import StderrLog, last_lines, mask_output

MAX_LINES = 5  # of one child
_MAX_BYTES = 500  # of a line
_SHOWN = 3
_SHOWN_CHARS = 160


class PlainOutput:
    """The lines of one child. They go into the server's log as well, where they are masked like stderr."""

    def __init__(self, log: StderrLog) -> None:
        self._log = log
        self._lines: list[bytes] = []

    def add(self, line: bytes | bytearray) -> None:
        if len(self._lines) < MAX_LINES and line.strip():
            self._lines.append(bytes(line[:_MAX_BYTES]))
            self._log.feed_stdout(self._lines[-1].rstrip(b"\r\n"))

    def sentence(self, unfinished: bytes = b"") -> str:
        """The reason that the lines are, for the operator only; empty: there are none. The last one has no end yet."""
        written = b"\n".join([*(line.rstrip(b"\r\n") for line in self._lines), unfinished[:_MAX_BYTES]])
        shown = last_lines(mask_output(written, self._log.hidden), MAX_LINES + 1)[:_SHOWN]
        named = ", ".join(f"`{line[:_SHOWN_CHARS]}{'…' if len(line) > _SHOWN_CHARS else ''}`" for line in shown)
        return f"it wrote lines to stdout that are not MCP: {named}" if named else ""
