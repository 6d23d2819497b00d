"""Moves closed journal segments into the state database for a busy daemon, in a process of its own.

Run as `python -m pointsman.router.audit.compaction.move_program STATE_DIR`. The rows go to PostgreSQL if the
environment names one. Each line of standard input names the segment that the daemon writes to, by run and number. The
answer ends with `moved N`, the number of rows, and an empty line; the lines before are for the daemon's log. The
program ends with its standard input, when it was idle for IDLE_S, and at an error, which the daemon meets itself when
it moves the rest.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import sys
from pathlib import Path

from pointsman.router.audit.database import FILE
from pointsman.router.audit.kept import READ_ERRORS, RowWriter, move
from pointsman.router.audit.segments import FOLDER
from pointsman.router.audit.store import Store

DATABASE = "POINTSMAN_MOVE_DATABASE"  # an address of PostgreSQL
REPLICA = "POINTSMAN_MOVE_REPLICA"
IDLE_S = 60.0
NICENESS = 10
MOVED = "moved "


def main(state_dir: Path) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends with its standard input
    os.nice(NICENESS)
    logging.basicConfig(stream=sys.stdout, format="%(message)s", level=logging.WARNING)
    store = _writer(state_dir)
    while select.select([sys.stdin], [], [], IDLE_S)[0] and (line := sys.stdin.readline()):
        run, number = line.split()
        before = store.added
        try:
            move(store, state_dir / FOLDER, (run, int(number)))
        except READ_ERRORS:
            sys.exit(1)
        print(f"{MOVED}{store.added - before}\n", flush=True)


def _writer(state_dir: Path) -> RowWriter:
    database = os.environ.pop(DATABASE, None)
    if database is None:
        return Store(state_dir / FILE)
    from pointsman.core.postgres import Postgres
    from pointsman.router.audit.postgres.writer import PostgresWriter

    return PostgresWriter(Postgres(database, program="pointsman audit", connections=1), os.environ.get(REPLICA))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
