"""`python -P -m pointsman.archive.code.imports.parse_worker`: the parser's own process.

Writes READY once it has started, then answers until its input ends. Each message is msgpack behind its length in four
bytes.
"""

from __future__ import annotations

import resource
import signal
import sys
from typing import BinaryIO

import msgspec

from pointsman.archive.code.imports.grammars import parse
from pointsman.archive.code.imports.syntax import READY, ParseRequest

MOST_MEMORY = 1 << 30
LAST_RESORT_S = 60.0  # beyond every timeout: ends a stuck parser whose archive has died


def main(incoming: BinaryIO, outgoing: BinaryIO) -> None:
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C is for the archive, which stops this process by closing the pipe
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    outgoing.write(READY)
    outgoing.flush()
    while len(size := incoming.read(4)) == 4:
        request = msgspec.msgpack.decode(incoming.read(int.from_bytes(size)), type=ParseRequest)
        signal.setitimer(signal.ITIMER_REAL, LAST_RESORT_S)
        response = msgspec.msgpack.encode(parse(request.grammar, request.source))
        signal.setitimer(signal.ITIMER_REAL, 0)
        outgoing.write(len(response).to_bytes(4) + response)
        outgoing.flush()


if __name__ == "__main__":
    main(sys.stdin.buffer, sys.stdout.buffer)
