"""Killed while it writes the state database: `python -m tests.router.audit.killed STATE BYTES`.

The kernel ends this process, as SIGKILL would, when it wants to make a file longer than BYTES. Says how many calls it
has written before each move.
"""

from __future__ import annotations

import resource
import signal
import sys
from itertools import count
from pathlib import Path

from pointsman.router.audit.database import FILE
from pointsman.router.audit.journal import Journal
from pointsman.router.audit.log import AuditLog
from pointsman.router.audit.segments import FOLDER
from pointsman.router.audit.store import Store
from tests.router.audit.samples import request


def main(state_dir: Path, file_bytes: int) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    store = Store(state_dir / FILE)
    for made in count():
        log = AuditLog(Journal(state_dir / FOLDER, seen_seq=made))
        log.begin(request(), "execute", tool_key="a:b", server_id="a").finish("ok")
        log.close()
        print(made + 1, flush=True)
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, resource.RLIM_INFINITY))
        store.move(state_dir / FOLDER, None)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
