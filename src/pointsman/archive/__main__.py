"""`python -P -m pointsman.archive` serves the archive over stdio until its input ends."""

from __future__ import annotations

import logging
import os
import signal
import sys

from pointsman.archive.settings import SettingsError, read_settings
from pointsman.core.dumpable import make_non_dumpable


def main() -> int:
    make_non_dumpable()  # the environment holds keys of embedding providers
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback at Ctrl-C when started by hand
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    logging.getLogger("pointsman").setLevel(logging.INFO)
    try:
        settings = read_settings(os.environ)
        from pointsman.archive.server.server import make_runner, serve  # after the settings, which may be invalid

        runner = make_runner(settings)
    except SettingsError as error:
        print(f"pointsman.archive: {error}", file=sys.stderr)
        return 2
    serve(runner)
    return 0


sys.exit(main())
