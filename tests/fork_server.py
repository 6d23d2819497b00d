"""Starts `python -P -m pointsman` for tests by fork, without its imports: they are most of the CPU time of a start.

`install()` replaces `subprocess.Popen`, which asyncio and anyio use as well. The first start of a module listed in
PRELOADED starts a server: an interpreter with one thread that has imported what the module imports. For each start it
forks, and the child takes the arguments, environment, folder and standard streams of the request and runs the module
as `python -m` does. The child is a process of its own and a child of the test process: signals, exit codes, sessions,
sockets and files are real. What differs from a new interpreter:

- modules are imported and the embedding model is loaded already, and all children of a server have one hash seed;
- at its end the process waits for its threads, runs its exit functions and flushes, but does not free its objects;
- /proc/PID/cmdline and /proc/PID/environ are the server's, and so are the resource limits.

A start that needs more than this is left to exec (`_can_fork`): other programs and options, `preexec_fn`, variables
that Python reads when it starts. A test marked `new_interpreter` uses exec throughout.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import io
import json
import os
import runpy
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from inspect import signature
from typing import Any

COMMANDS = (
    *("archive", "run.search_api", "run.serve", "run.stdio", "setup.client", "setup.import_", "setup.server"),
    *("setup.token", "show.audit", "show.doctor", "show.tools"),
)
PRELOADED = {  # also what they import at first use, as far as many tests use it
    "pointsman": (
        *(f"pointsman.router.cli.{command}" for command in COMMANDS),
        *("pointsman.router.app", "pointsman.router.downstream.http.connect"),
        *("anyio._backends._asyncio", "cryptography.hazmat.primitives.ciphers.aead", "encodings.idna"),
        *("encodings.utf_8_sig", "httpcore2", "jsonschema_rs", "snowballstemmer", "truststore"),
        *("uvicorn.lifespan.off", "uvloop"),
    ),
    "pointsman.archive": (
        *(f"pointsman.archive.{part}" for part in ("server.server", "context.service", "embedding.static")),
        *(f"pointsman.archive.{part}" for part in ("citations.extract", "local_archives.search")),
        *(f"pointsman.archive.store.{engine}.storage" for engine in ("sqlite", "postgres")),
        *("anyio._backends._asyncio", "limits.storage", "numpy.ma", "rapidfuzz.distance"),
        *("snowballstemmer", "watchfiles"),
    ),
}
# Loaded by all, soon after the start.
MODEL = ("pointsman.providers.bm25.index", "pointsman.providers.bm25.ranking", "pointsman.providers.embeddings")
READ_AT_START = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_")  # variables that a running interpreter has read already
PR_SET_CHILD_SUBREAPER = 36
LENGTH = struct.Struct("!I")
RUN_FIRST = "FORK_SERVER_RUN_FIRST"  # a variable: the file to run before the module, which can inject a fault into it

Start = dict[str, Any]  # the parameters of `Popen._execute_child`

enabled = True  # False while a test marked `new_interpreter` runs
_ENVIRONMENT = dict(os.environ)
servers: dict[str, ForkServer] = {}  # by module, started when first needed
_lock = threading.Lock()


def install() -> None:
    """From now on, start by fork in this process where that is possible."""
    if sys.platform == "linux":
        subprocess.Popen = ForkingPopen  # type: ignore[misc]


class ForkingPopen(subprocess.Popen[Any]):
    """A Popen whose process may come from a fork server."""

    def _execute_child(self, *given: Any) -> None:
        start: Start = dict(zip(_PARAMETERS, given, strict=True))
        if not _can_fork(start):
            super()._execute_child(*given)  # type: ignore[misc]
            return
        with _lock:
            module = start["args"][3]
            server = servers.get(module) or servers.setdefault(module, ForkServer(module))
            self.pid = server.start(start)
        self._child_created = True
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(start[name] for name in pipes))  # type: ignore[attr-defined]


_PARAMETERS = tuple(signature(subprocess.Popen._execute_child).parameters)[1:]  # type: ignore[attr-defined]


def _can_fork(start: Start) -> bool:
    args, env = start["args"], start["env"]
    return (
        enabled
        and isinstance(args, (list, tuple))
        and tuple(args[:3]) == (sys.executable, "-P", "-m")
        and args[3] in PRELOADED
        and all(start[name] is None for name in ("executable", "preexec_fn", "gid", "gids", "uid"))
        and not (start["shell"] or start["pass_fds"])
        and start["close_fds"]
        and (start["cwd"] is None or os.path.isdir(start["cwd"]))
        and all(_ENVIRONMENT.get(name) == value for name, value in _texts(env or {}) if name.startswith(READ_AT_START))
    )


def _texts(env: Mapping[Any, Any]) -> Iterator[tuple[str, str]]:
    return ((os.fsdecode(name), os.fsdecode(value)) for name, value in env.items())


def _streams(start: Start) -> list[int]:
    """Stdin, stdout and stderr; -1 stands for the test process's own."""
    given = (start["p2cread"], start["c2pwrite"], start["errwrite"])
    return [own if fd == -1 else fd for own, fd in enumerate(given)]


class ForkServer:
    """The test process's end of a server for one module."""

    def __init__(self, module: str) -> None:
        self._channel, theirs = socket.socketpair()
        command = [sys.executable, "-P", __file__, str(theirs.fileno()), module]
        with theirs:
            env = os.environ | {"OPENBLAS_NUM_THREADS": "1"}  # else NumPy starts threads, which a fork does not have
            self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=env)
        atexit.register(self.close)

    def start(self, start: Start) -> int:
        """The pid of a new child of this process, which runs the module."""
        request = {
            "args": [os.fsdecode(arg) for arg in start["args"][4:]],
            "cwd": os.fsdecode(start["cwd"] or os.getcwd()),
            "env": dict(_texts(os.environ if start["env"] is None else start["env"])),
            "session": start["start_new_session"],
            "group": start["process_group"],
            "umask": _umask() if start["umask"] == -1 else start["umask"],
        }
        message = json.dumps(request).encode()
        _adopt_orphans(True)  # the server's child that forks ends at once: this process becomes the new one's parent
        try:
            socket.send_fds(self._channel, [LENGTH.pack(len(message))], _streams(start))
            self._channel.sendall(message)
            return int(LENGTH.unpack(_read(self._channel, LENGTH.size))[0])
        finally:
            _adopt_orphans(False)

    def close(self) -> None:
        self._channel.close()
        self.process.wait()


def _umask() -> int:
    """The mask of this process, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _adopt_orphans(on: bool) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, int(on), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def _read(channel: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = channel.recv(size - len(parts))
        if not part:
            raise EOFError("the fork server has ended")
        parts += part
    return bytes(parts)


def serve(channel: socket.socket) -> list[str]:
    """Fork for each request. Only the forked processes return, each its arguments; the server exits when tests end."""
    while True:
        header, fds, _, _ = socket.recv_fds(channel, LENGTH.size, 3)
        if not header:
            sys.exit()
        request = json.loads(_read(channel, *LENGTH.unpack(header)))
        released, release = os.pipe()
        told, tell = os.pipe()
        between = os.fork()
        if between == 0:
            if pid := os.fork():
                os.write(tell, LENGTH.pack(pid))
                os._exit(0)
            for fd in (release, told, tell):
                os.close(fd)
            os.read(released, 1)  # until the test process is the parent
            channel.close()
            _take_over(request, fds)
            args: list[str] = request["args"]
            return args
        os.waitpid(between, 0)
        channel.sendall(os.read(told, LENGTH.size))
        for fd in (released, release, told, tell, *fds):
            os.close(fd)


def _take_over(request: dict[str, Any], fds: list[int]) -> None:
    """Make this process what a new interpreter would be that got the request."""
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
    os.closerange(3, max(fds) + 1)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    if request["session"]:
        os.setsid()
    if request["group"] >= 0:
        os.setpgid(0, request["group"])
    os.umask(request["umask"])
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        setattr(sys, name, _reopened(number, getattr(sys, name)))
        setattr(sys, f"__{name}__", getattr(sys, name))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


def _reopened(number: int, like: io.TextIOWrapper) -> io.TextIOWrapper:
    """A standard stream for what its descriptor is now: a terminal or not, seekable or not, and of which block size."""
    buffering = 0 if isinstance(like.buffer, io.FileIO) else -1
    binary = open(number, "wb" if number else "rb", buffering, closefd=False)  # noqa: SIM115
    lines = like.line_buffering or binary.isatty()
    through, newline = like.write_through, "\n" if number else None
    return io.TextIOWrapper(binary, like.encoding, like.errors, newline, line_buffering=lines, write_through=through)


def main() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # Ctrl-C at the terminal is for pytest
    module = sys.argv[2]
    for name in (*PRELOADED[module], *MODEL):
        import_module(name)
    sys.modules[MODEL[-1]].load()
    gc.collect()
    gc.freeze()  # the children write to fewer shared pages
    sys.argv[1:] = serve(socket.socket(fileno=int(sys.argv[1])))
    try:
        if first := os.environ.get(RUN_FIRST):
            runpy.run_path(first)
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as error:
        if isinstance(error.code, int):
            _exit(error.code)
        raise
    _exit(0)


def _exit(code: int) -> None:
    """End as an interpreter ends, but do not free every object: in a forked process that copies all memory first."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with suppress(OSError):  # the interpreter reports it
        for stream in (sys.stdout, sys.stderr):
            if not stream.closed:
                stream.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
