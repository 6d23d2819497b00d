"""The lines of the log on stderr: text for people at a terminal, JSON objects for programs."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pointsman.config.model import LogFormat

TEXT_FORMAT = "%(asctime)s %(levelname)-7s %(worker)s%(message)s"
MAX_CHARS = 16_384  # of a message, and of a traceback


class LogLines(logging.Formatter):
    """Formats records as `log.format` says. `ids` are those of the request whose task logs."""

    def __init__(self, wanted: LogFormat, *, terminal: bool) -> None:
        super().__init__(TEXT_FORMAT, "%H:%M:%S")
        self._terminal = terminal
        self.ids: Callable[[], Mapping[str, str]] = dict
        self.worker = 0  # the number of this process among workers, whose lines come together; 0: it is none
        self.configure(wanted)

    def configure(self, wanted: LogFormat) -> None:
        self._json = wanted == "json" or (wanted == "auto" and not self._terminal)

    def format(self, record: logging.LogRecord) -> str:
        if self._json:
            return self._as_json(record)
        record.worker = f"[worker {self.worker}] " if self.worker else ""
        return super().format(record)

    def _as_json(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage()[:MAX_CHARS],
            "logger": record.name,
            **({"worker": self.worker} if self.worker else {}),
            **self.ids(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)[-MAX_CHARS:]
        return json.dumps(line)  # in ASCII, so that it is the same in every locale
