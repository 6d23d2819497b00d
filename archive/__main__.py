"""`python -P -m pointsman.archive` serves the archive over stdio until its input ends."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from pointsman.archive.settings import BadSettings, read_settings


def main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # started by hand, Ctrl-C needs no traceback
    try:
        settings = read_settings(os.environ)
    except BadSettings as error:
        print(f"pointsman.archive: {error}", file=sys.stderr)
        return 2
    from pointsman.archive.server import serve  # takes most of a second, which a refusal need not wait for

    asyncio.run(serve(settings))
    return 0


sys.exit(main())
