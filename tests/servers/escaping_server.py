"""A server that tries to get out of its sandbox: `try` takes a list of attempts and answers with what each one gave.

Run with `python -I -S`. An attempt is a list: a name, then its arguments. Its result is `["ok", VALUE]` or
`["refused", ERRNO]`. With --stubborn it runs on after the end of its input; --note FILE is written at SIGTERM, and
--started FILE when it starts.
"""

from __future__ import annotations

import ctypes
import errno
import json
import mmap
import os
import signal
import socket
import sys
import time


def read(path: str) -> object:
    with open(path, "rb") as file:
        return file.read(200).decode(errors="replace")


def listing(path: str) -> object:
    return sorted(os.listdir(path))


def write(path: str) -> object:
    with open(path, "w") as file:
        file.write("written")
    return None


def append(path: str) -> object:
    with open(path, "a") as file:
        file.write("!")
    return None


def truncate(path: str) -> object:
    os.truncate(path, 0)
    return None


def remove(path: str) -> object:
    os.unlink(path)
    return None


def link(source: str, path: str) -> object:
    os.link(source, path)
    return read(path)


def change_mode(path: str) -> object:
    os.chmod(path, 0o777)
    return None


def tcp(port: int) -> object:
    with socket.create_connection(("127.0.0.1", port), timeout=5):
        return None


def udp(port: int) -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.settimeout(0.5)
        one.connect(("127.0.0.1", port))
        one.send(b"hello")
        return one.recv(100).decode()


def unix(path: str) -> object:
    """A path, or with @ the name of an abstract socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one:
        one.settimeout(5)
        one.connect("\0" + path[1:] if path.startswith("@") else path)
        return None


def datagram_pair(path: str) -> object:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with one, other:
        one.sendto(b"hello", path)
        return None


def own_pair() -> object:
    one, other = socket.socketpair()
    with one, other:
        one.send(b"x")
        return other.recv(1).decode()


def own_loopback() -> object:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        tcp(listener.getsockname()[1])
        return None


def family(number: int) -> object:
    socket.socket(number, socket.SOCK_STREAM).close()
    return None


def io_uring() -> object:
    return _system_call(425, 1, ctypes.create_string_buffer(120))


def keyring() -> object:
    return _system_call({"x86_64": 250, "aarch64": 219}[os.uname().machine], 0, -4, 0)


def limit_of(pid: int) -> object:
    import resource

    return resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))


def send_signal(pid: int) -> object:
    os.kill(pid, 0)
    return None


def own_process() -> object:
    return [os.getpid(), os.getuid(), sorted(name for name in os.listdir("/proc/self/fd"))]


def capabilities() -> object:
    with open("/proc/self/status") as file:
        return [int(line.split()[1], 16) for line in file if line.startswith("Cap")]


def variable(name: str) -> object:
    return os.environ.get(name)


def folder() -> object:
    return os.getcwd()


def temporary() -> object:
    path = os.path.join(os.environ.get("TMPDIR", "/tmp"), "own")
    write(path)
    return [path, read(path)]


def children(count: int) -> object:
    """How many of so many children can be had at a time."""
    pids = []
    try:
        for _ in range(count):
            pid = os.fork()
            if not pid:
                time.sleep(60)
                os._exit(0)
            pids.append(pid)
    except OSError as error:
        return [len(pids), errno.errorcode[error.errno or 0]]
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return [len(pids), ""]


def memory(size: int) -> object:
    mmap.mmap(-1, size).close()
    return None


def child(*argv: str) -> object:
    import subprocess

    return subprocess.run(argv, capture_output=True, check=True, timeout=20).stdout.decode()


def _system_call(*arguments: object) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    result = int(libc.syscall(*arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
    return result


def attempt(name: str, *arguments: object) -> list[object]:
    try:
        return ["ok", globals()[name](*arguments)]
    except OSError as error:
        return ["refused", errno.errorcode.get(error.errno or 0, str(error))]


def answer(request: dict[str, object]) -> dict[str, object] | None:
    params = request.get("params")
    assert isinstance(params, dict)
    if request["method"] == "initialize":
        info = {"name": "escaping", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    if request["method"] == "tools/list":
        return {"tools": [{"name": "try", "inputSchema": {"type": "object"}}]}
    if request["method"] == "tools/call":
        results = [attempt(*one) for one in params["arguments"]["attempts"]]
        return {"content": [{"type": "text", "text": json.dumps(results)}]}
    return None


def main() -> None:
    if "--note" in sys.argv:
        path = sys.argv[sys.argv.index("--note") + 1]
        signal.signal(signal.SIGTERM, lambda *_: (write(path), os._exit(0)))
    if "--started" in sys.argv:
        write(sys.argv[sys.argv.index("--started") + 1])
    sys.stderr.write("the escaping server has started\n")
    sys.stderr.flush()
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        reply: dict[str, object] = {"jsonrpc": "2.0", "id": request["id"]}
        result = answer(request)
        if result is None:
            reply["error"] = {"code": -32601, "message": "unknown"}
        else:
            reply["result"] = result
        print(json.dumps(reply), flush=True)
    while "--stubborn" in sys.argv:
        time.sleep(1)


if __name__ == "__main__":
    main()
