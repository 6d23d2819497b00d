"""The system call filter of a sandbox, as a BPF program. Pure.

It closes what neither namespaces nor Landlock close: unix sockets, io_uring (which opens sockets unseen by a filter),
the kernel's keyrings, and for Landlock also the mode, owner, times and attributes of files, and limits and priorities
of other processes.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
_IN_NAMESPACE = (
    AF_INET,
    AF_INET6,
    AF_NETLINK,
)  # a network namespace separates these; AF_VSOCK, for example, it does not
_CONNECTED_PAIRS = (1, 5)  # SOCK_STREAM and SOCK_SEQPACKET: an end of a pair of datagram sockets can send anywhere
_TYPE_BITS = 0xF  # of the type of a socket, without its flags
_X32 = 0x40000000

_NUMBERS_X86_64 = {
    "socket": 41, "socketpair": 53, "io_uring_setup": 425, "add_key": 248, "request_key": 249, "keyctl": 250,
    "chmod": 90, "fchmod": 91, "fchmodat": 268, "fchmodat2": 452,
    "chown": 92, "fchown": 93, "lchown": 94, "fchownat": 260,
    "setxattr": 188, "lsetxattr": 189, "fsetxattr": 190, "removexattr": 197, "lremovexattr": 198, "fremovexattr": 199,
    "setxattrat": 463, "removexattrat": 466, "utime": 132, "utimes": 235, "futimesat": 261, "utimensat": 280,
    "shmget": 29, "shmat": 30, "semget": 64, "msgget": 68, "mq_open": 240,
    "prlimit64": 302, "sched_setparam": 142, "sched_setscheduler": 144, "sched_setaffinity": 203, "sched_setattr": 314,
    "setpriority": 141, "ioprio_set": 251,
}  # fmt: skip
_NUMBERS_AARCH64 = {
    "socket": 198, "socketpair": 199, "io_uring_setup": 425, "add_key": 217, "request_key": 218, "keyctl": 219,
    "fchmod": 52, "fchmodat": 53, "fchmodat2": 452, "fchownat": 54, "fchown": 55,
    "setxattr": 5, "lsetxattr": 6, "fsetxattr": 7, "removexattr": 14, "lremovexattr": 15, "fremovexattr": 16,
    "setxattrat": 463, "removexattrat": 466, "utimensat": 88,
    "shmget": 194, "shmat": 196, "semget": 190, "msgget": 186, "mq_open": 180,
    "prlimit64": 261, "sched_setparam": 118, "sched_setscheduler": 119, "sched_setaffinity": 122, "sched_setattr": 274,
    "setpriority": 140, "ioprio_set": 30,
}  # fmt: skip
_KEYRINGS = ("add_key", "request_key", "keyctl")
_ATTRIBUTES = (
    *("chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat"),
    *(
        "setxattr",
        "lsetxattr",
        "fsetxattr",
        "removexattr",
        "lremovexattr",
        "fremovexattr",
        "setxattrat",
        "removexattrat",
    ),
    *("utime", "utimes", "futimesat", "utimensat"),
)
_SHARED_MEMORY = ("shmget", "shmat", "semget", "msgget", "mq_open")  # has no paths that Landlock could check
_ON_PROCESSES = {  # the argument that names a process; 0 is the caller itself
    **dict.fromkeys(("prlimit64", "sched_setparam", "sched_setscheduler", "sched_setaffinity", "sched_setattr"), 0),
    **dict.fromkeys(("setpriority", "ioprio_set"), 1),
}


@dataclass(frozen=True, slots=True)
class _Architecture:
    audit: int  # as the kernel tells a filter
    numbers: Mapping[str, int]
    has_x32: bool = False


_ARCHITECTURES = {
    "x86_64": _Architecture(0xC000003E, _NUMBERS_X86_64, has_x32=True),
    "aarch64": _Architecture(0xC00000B7, _NUMBERS_AARCH64),
}


def filter_of(machine: str, *, network: bool, landlock: bool) -> bytes | None:
    """The filter for `os.uname().machine`; None: its system calls are not known here."""
    architecture = _ARCHITECTURES.get(machine)
    if architecture is None:
        return None
    numbers = architecture.numbers
    rules = [_load(_ARCH), *_unless_equal(architecture.audit, [_refuse(errno.ENOSYS)], negated=True), _load(_NUMBER)]
    if architecture.has_x32:
        rules += [_jump(_JGE, _X32, 0, 1), _refuse(errno.ENOSYS)]
    for name in ("io_uring_setup", *_KEYRINGS):
        rules += _refused(numbers[name], errno.ENOSYS)
    rules += _sockets(numbers["socket"], network)
    rules += _socket_pairs(numbers["socketpair"])
    if landlock:
        for name in (*_ATTRIBUTES, *_SHARED_MEMORY):
            if name in numbers:
                rules += _refused(numbers[name], errno.EPERM if name in _ATTRIBUTES else errno.ENOSYS)
        for name, argument in _ON_PROCESSES.items():
            body = [_load(_argument(argument)), *_allowed((0,)), _refuse(errno.EPERM)]
            rules += _unless_equal(numbers[name], body)
    return b"".join((*rules, _ALLOW))


def _sockets(number: int, network: bool) -> list[bytes]:
    """With a network, all but unix sockets; without, only those that the namespace of the network separates."""
    if network:
        return _unless_equal(number, [_load(_argument(0)), _jump(_JEQ, AF_UNIX, 0, 1), _refuse(errno.EACCES), _ALLOW])
    return _unless_equal(number, [_load(_argument(0)), *_allowed(_IN_NAMESPACE), _refuse(errno.EACCES)])


def _socket_pairs(number: int) -> list[bytes]:
    kind = [_load(_argument(1)), _instruction(_AND, _TYPE_BITS)]
    return _unless_equal(number, [*kind, *_allowed(_CONNECTED_PAIRS), _refuse(errno.EACCES)])


# The instructions of classic BPF: code, jump if true, jump if false, operand.

_LD, _JEQ, _JGE, _AND, _RET = 0x20, 0x15, 0x35, 0x54, 0x06
_NUMBER, _ARCH = 0, 4  # offsets in the data of a call


def _argument(index: int) -> int:
    return 16 + 8 * index  # its lower half, on processors that store it first


def _instruction(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, operand)


def _load(offset: int) -> bytes:
    return _instruction(_LD, offset)


def _jump(code: int, operand: int, if_true: int, if_false: int) -> bytes:
    return _instruction(code, operand, if_true, if_false)


def _refuse(number: int) -> bytes:
    return _instruction(_RET, 0x00050000 | number)


_ALLOW = _instruction(_RET, 0x7FFF0000)


def _refused(number: int, reason: int) -> list[bytes]:
    return _unless_equal(number, [_refuse(reason)])


def _allowed(values: Sequence[int]) -> list[bytes]:
    return [one for value in values for one in (_jump(_JEQ, value, 0, 1), _ALLOW)]


def _unless_equal(value: int, body: list[bytes], *, negated: bool = False) -> list[bytes]:
    """Skip `body`, which ends the filter, unless what was loaded equals `value`; if `negated`, if it does."""
    skipped = len(body)
    return [_jump(_JEQ, value, skipped, 0) if negated else _jump(_JEQ, value, 0, skipped), *body]
