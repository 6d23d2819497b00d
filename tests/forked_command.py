"""A `pointsman` for the PATH of a shell: the process comes from the fork server, without the imports of a new start.

The program in the folder hands its arguments, environment, folder and standard streams to this process, waits, and
exits with the code that it gets back. If it ends before, as at a hang-up, the command is killed.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LENGTH = struct.Struct("!I")
EXIT_CODE = struct.Struct("!i")
PROGRAM = """#!{python} -SE
import json, os, socket, struct, sys
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect({address!r})
    asked = json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]).encode()
    socket.send_fds(connection, [struct.pack("!I", len(asked))], [0, 1, 2])
    connection.sendall(asked)
    sys.exit(struct.unpack("!i", connection.recv(4))[0])
"""


@contextmanager
def forked_command(folder: Path) -> Iterator[Path]:
    """A folder with `pointsman` in it, which works inside the block."""
    program = folder / "pointsman"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket"))
        listener.listen()
        program.write_text(PROGRAM.format(python=sys.executable, address=str(folder / "socket")))
        program.chmod(0o755)
        threading.Thread(target=_serve, args=(listener,), daemon=True).start()
        try:
            yield folder
        finally:
            listener.shutdown(socket.SHUT_RDWR)


def _serve(listener: socket.socket) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_run, args=(connection,), daemon=True).start()


def _run(connection: socket.socket) -> None:
    with connection:
        header, fds, _, _ = socket.recv_fds(connection, LENGTH.size, 3)
        with connection.makefile("rb") as stream:
            args, env, cwd = json.loads(stream.read(*LENGTH.unpack(header)))
        command = [sys.executable, "-P", "-m", "pointsman", *args]
        try:
            process = subprocess.Popen(command, stdin=fds[0], stdout=fds[1], stderr=fds[2], env=env, cwd=cwd)
        finally:
            for fd in fds:
                os.close(fd)
        threading.Thread(target=_kill_at_hang_up, args=(connection.fileno(), process), daemon=True).start()
        code = process.wait()
        try:
            connection.sendall(EXIT_CODE.pack(code if code >= 0 else 128 - code))
        except OSError:
            return  # nobody waits for it


def _kill_at_hang_up(descriptor: int, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        if select.select([descriptor], [], [], 0.1)[0]:
            process.kill()
            return
