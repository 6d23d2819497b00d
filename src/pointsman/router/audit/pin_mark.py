"""A mark in the database of the audit: its folder has pins. Without the pins and with the mark, they were lost."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from pointsman.router.audit.database import BUSY_S, FILE, NewerSchemaError, open_database, open_to_read
from pointsman.router.state.key_values import StateAwayError

_HAD_PINS: Final = 0x50494E53  # as the database's `application_id`, which a version without pins leaves at 0

logger = logging.getLogger(__name__)


class PinMark:
    """Fits `Mark`. `writes`: the audit is in this folder, too; otherwise an earlier one may have left its mark."""

    def __init__(self, state_dir: Path, *, writes: bool = True) -> None:
        self._path = state_dir / FILE
        self._writes = writes

    def exists(self) -> bool:
        try:
            return self._exists()
        except (sqlite3.Error, OSError, NewerSchemaError) as error:
            raise StateAwayError(f"Whether there were pins cannot be read from {self._path}: {error}") from error

    def write(self) -> None:
        try:
            if self._writes and not self._exists():
                self._write()
        except (sqlite3.Error, OSError, NewerSchemaError) as error:
            logger.warning("could not note in %s that there are pins: %s; the next start tries again", FILE, error)

    def _exists(self) -> bool:
        connection = open_to_read(self._path)
        if connection is None:
            return False
        with closing(connection):
            return bool(connection.execute("PRAGMA application_id").fetchone()[0] == _HAD_PINS)

    def _write(self) -> None:
        # The audit may open it at the same time, and only one may set a damaged file aside.
        is_new = not self._path.exists() or self._path.stat().st_size == 0
        with closing(open_database(self._path) if is_new else sqlite3.connect(self._path, timeout=BUSY_S)) as database:
            database.execute(f"PRAGMA application_id = {_HAD_PINS}")
