"""The launcher: a program that confines itself by limits, a user namespace and Landlock, and then becomes the server.

Run as `python -I -S landlock.py JSON PROGRAM ARG0 ARG...`; JSON is a `Confinement`. A program of its own, because code
between fork and exec could deadlock a daemon with threads. It uses the standard library only. As it execs, the server
has the process id, group and pipes that the daemon knows. `landlock.py probe` prints what this kernel can enforce.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import resource
import socket
import struct
import sys
from typing import Any, TypedDict

MIN_ABI = 6  # Linux 6.12: the first that keeps signals inside; before 3, even files that are only read could be emptied

TEMPORARY = "pointsman-sandbox-"  # how the names of temporary folders begin

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same numbers on all processors
_ASK_ABI = 1
_RULE_PATH = 1
_READ = 1 << 2 | 1 << 3 | 1 << 0  # files, folders, execute
_READ_FILE = 1 << 2 | 1 << 0
_WRITE_FILE = 1 << 1 | 1 << 14  # write, truncate
_ALL = (1 << 16) - 1  # all rights of ABI 5 and later
_ALL_ON_FILE = _READ_FILE | _WRITE_FILE | 1 << 15  # ioctl of devices
_SCOPES = 1 << 0 | 1 << 1  # abstract unix sockets, signals
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_PR_CAPBSET_DROP, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _AMBIENT_CLEAR = 24, 22, 38, 47, 4
_SECCOMP_FILTER = 2
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_CAPABILITY_VERSION = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class Confinement(TypedDict):
    """What the launcher does before it becomes the program."""

    memory: int | None  # bytes of address space
    processes: int | None  # in a user namespace of its own
    own_network: bool  # a network namespace with nothing but its own loopback
    rules: Rules | None  # of Landlock; None: no Landlock, such as in front of bubblewrap


class Rules(TypedDict):
    read: list[str]
    write: list[str]
    filter: str  # in base 16
    temporary: str  # the folder in which it gets one of its own


class Abilities(TypedDict):
    """What this kernel lets this user do."""

    abi: int  # of Landlock; 0: it has none
    user_namespace: str  # why not; empty: it can
    network_namespace: str


def main(arguments: list[str]) -> None:
    if arguments == ["probe"]:
        print(json.dumps(probe()))
        return
    wanted, program, *argv = arguments
    try:
        confine(json.loads(wanted))
        os.execve(program, argv, os.environ)  # noqa: S606 - that is what it is for
    except OSError as error:
        what = error.filename if isinstance(error.filename, str) else program
        sys.stderr.write(f"error: the sandbox could not be set up: {error.strerror} ({what})\n")
        os._exit(126)  # as a shell ends if a program cannot be executed


def confine(wanted: Confinement) -> None:
    """Raises OSError: it is not confined, or not entirely."""
    if wanted["processes"] is not None or wanted["own_network"]:
        enter_namespaces(_CLONE_NEWUSER | (_CLONE_NEWNET if wanted["own_network"] else 0))
    rules = wanted["rules"]
    if rules is not None:
        rules["write"].append(own_temporary_folder(rules["temporary"]))
        drop_capabilities()
        restrict(rules["read"], rules["write"])
        load_filter(bytes.fromhex(rules["filter"]))
    for kind, limit in ((resource.RLIMIT_NPROC, wanted["processes"]), (resource.RLIMIT_AS, wanted["memory"])):
        if limit is not None:
            resource.setrlimit(kind, (limit, limit))


def probe() -> Abilities:
    """Enters the namespaces that it can have: for a process that ends afterwards."""
    found = Abilities(
        abi=max(_libc.syscall(_CREATE_RULESET, None, 0, _ASK_ABI), 0), user_namespace="", network_namespace=""
    )
    for flags in (_CLONE_NEWUSER | _CLONE_NEWNET, _CLONE_NEWUSER):
        try:
            enter_namespaces(flags)
        except OSError as error:
            found["network_namespace"] = found["network_namespace"] or error.strerror or "refused"
        else:
            return found
    found["user_namespace"] = found["network_namespace"]
    return found


def enter_namespaces(flags: int) -> None:
    """Enter new ones, as the same user and group."""
    user, group = os.geteuid(), os.getegid()
    _check(_libc.unshare(flags), "unshare")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    if flags & _CLONE_NEWNET:
        _bring_up_loopback()


def _bring_up_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        asked = struct.pack("=16sH14x", b"lo", 0)
        flags = struct.unpack("=16sH14x", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, asked))[1]
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("=16sH14x", b"lo", flags | _IFF_UP))


def own_temporary_folder(parent: str) -> str:
    """Make one, and hold a lock on it until the server and its children have ended: it is not deleted before."""
    while True:
        path = os.path.join(parent, TEMPORARY + os.urandom(8).hex())
        os.mkdir(path, 0o700)
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(handle, fcntl.LOCK_SH)
        if os.path.isdir(path):  # else it was taken for an unused one before the lock was ours
            break
        os.close(handle)
    os.set_inheritable(handle, True)
    os.environ.update(TMPDIR=path, TMP=path, TEMP=path)
    if os.getcwd() == parent:
        os.chdir(path)
    return path


def drop_capabilities() -> None:
    """Those of root, and of the owner of a user namespace."""
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    _libc.prctl(_PR_CAP_AMBIENT, _AMBIENT_CLEAR, 0, 0, 0)
    number = 0
    while _libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0) == 0:  # until the last one, or at once without the right to
        number += 1
    _check(_libc.capset(struct.pack("=Ii", _CAPABILITY_VERSION, 0), bytes(24)), "capset")


def restrict(read: list[str], write: list[str]) -> None:
    """Allow to read and run what is in `read`, and everything in `write`. Paths that do not exist are left out."""
    attributes = struct.pack("=QQQ", _ALL, 0, _SCOPES)
    ruleset = _check(_libc.syscall(_CREATE_RULESET, attributes, len(attributes), 0), "Landlock")
    for paths, in_folder, on_file in ((read, _READ, _READ_FILE), (write, _ALL, _ALL_ON_FILE)):
        for path in paths:
            try:
                handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            rights = in_folder if os.path.isdir(path) else on_file
            _check(_libc.syscall(_ADD_RULE, ruleset, _RULE_PATH, struct.pack("=Qi", rights, handle), 0), path)
            os.close(handle)
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    _check(_libc.syscall(_RESTRICT_SELF, ruleset, 0), "Landlock")
    os.close(ruleset)


def load_filter(program: bytes) -> None:
    buffer = ctypes.create_string_buffer(program, len(program))

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))

    described = Program(len(program) // 8, ctypes.addressof(buffer))
    _check(_libc.prctl(_PR_SET_SECCOMP, _SECCOMP_FILTER, ctypes.byref(described), 0, 0), "seccomp")


def _check(result: Any, what: str) -> int:
    """Raises OSError if a system call failed."""
    if result >= 0:
        return int(result)
    number = ctypes.get_errno() or errno.EPERM
    raise OSError(number, os.strerror(number), what)


if __name__ == "__main__":
    main(sys.argv[1:])
