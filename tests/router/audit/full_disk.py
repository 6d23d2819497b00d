"""Runs out of room, gets room again and goes on: `python -m tests.router.audit.full_disk STATE`.

The room is the size that the kernel allows this process for a file, so that it fails as a full disk does: the last
write is cut short, the next ones are refused.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

from pointsman.core.errors import AuditUnavailableError
from pointsman.router.audit.log import Record
from tests.router.audit.samples import Observed, open_log, request

ROOM = 5000


def main(state_dir: Path) -> None:
    seen = Observed()
    log = open_log(state_dir, observers=[seen])
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, most))
    begun: list[Record] = []
    try:
        while True:
            begun.append(log.begin(request(f"before-{len(begun)}"), "execute", tool_key="a:b", server_id="a"))
    except AuditUnavailableError:
        print("begun", len(begun))
    for record in begun:
        record.finish("ok")
    for _ in range(5):
        try:
            log.begin(request("refused"), "execute")
        except AuditUnavailableError:
            continue
    print("failing", log.failing, "told", seen.failures > 5)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    log.begin(request("after"), "execute").finish("ok")
    print("failing", log.failing)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
