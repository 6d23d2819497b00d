"""Plans how a confined server is started: by bubblewrap where it works, else by Landlock.

What cannot be enforced in full is refused. `plan` is pure but for looking at the files it is asked about; `this_host`
finds out what the machine can enforce.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pointsman.config.sections.server import DOWNLOADERS, Sandbox, ServerLimits
from pointsman.router.downstream.stdio import landlock
from pointsman.router.downstream.stdio.landlock import Abilities, Confinement, Rules
from pointsman.router.downstream.stdio.launch import (
    FILTER_HANDLE,
    Confined,
    Launch,
    SandboxRefusedError,
    argument_path,
)
from pointsman.router.downstream.stdio.sandbox_paths import (
    PROGRAM_FOLDERS,
    SYSTEM_FILES,
    find_program,
    is_in,
    needed_paths,
    starter_variables,
)
from pointsman.router.downstream.stdio.seccomp import filter_of

DOWNLOADS = ".cache/pointsman/sandbox"  # in the home folder; each server has one of its own in it
MIN_ROOM = 64 << 20  # bytes of its own /tmp and home folder
_PROBE_S = 10.0
_NOT_INSTALLED = "bubblewrap is not installed"
_BWRAP_PROCESSES = 2  # of bubblewrap itself, one on either side
_KERNEL_FILES = tuple(
    f"/proc/{name}"
    for name in ("self", "sys", "cpuinfo", "meminfo", "stat", "loadavg", "uptime", "version", "filesystems")
)
_ALWAYS_THERE = frozenset({"/", "/tmp"})  # noqa: S108 - in each sandbox, with other things in it
_DEVICES = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom"))
_NAMESPACES = ("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
_HARDENING = ("--disable-userns", "--cap-drop", "ALL", "--die-with-parent")


@dataclass(frozen=True, slots=True)
class Host:
    """What this machine can enforce for this user."""

    abilities: Abilities
    bwrap: str | None = None  # its path; None: it is not installed, or does not work
    bwrap_problem: str = _NOT_INSTALLED
    machine: str = "x86_64"
    root: bool = False
    linux: bool = True
    launcher: tuple[str, ...] = (sys.executable, "-I", "-S", landlock.__file__)
    temporary: str = "/tmp"  # noqa: S108 - where folders of their own are made
    own_files: tuple[str, ...] = ()  # of Pointsman and its Python, which no server may change


@dataclass(frozen=True, slots=True)
class Access:
    """What it may read and what it may also write, as written and without repetitions."""

    read: tuple[Path, ...]
    write: tuple[Path, ...]


def plan(
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: Path | None,
    confined: Confined,
    host: Host,
    protected: Sequence[Path] = (),
) -> Launch:
    """`protected` are the state folder, then other paths that no server may reach.

    Raises:
        SandboxRefusedError: with the reason.
        FileNotFoundError, PermissionError: there is no such program.
    """
    _check_host(confined, env, host)
    program = find_program(argv[0], cwd, env)
    wanted = _limits(confined.limits)
    if confined.sandbox is None:
        return Launch(_launched(wanted, program, argv, host), env, cwd, how="limits")
    _check_starter(program.name, host)
    access = access_of(program, argv[1:], env, cwd, confined.sandbox, host, protected)
    downloads = Path(env.get("HOME") or host.temporary) / DOWNLOADS / confined.name
    own = starter_variables(program.name, downloads, confined.sandbox.network)
    if own:
        env, access = {**own, **env}, replace(access, write=(*access.write, downloads))
    start = _Start(program, argv, env, cwd, confined.sandbox, access, wanted, host)
    launch = _by_bubblewrap(host.bwrap, start) if host.bwrap is not None else _by_landlock(start)
    unseen = tuple(_unseen(argv[1:], cwd, access, protected))
    return replace(launch, downloads=downloads if own else None, unseen=unseen)


# ---------------------------------------------------------------------- refusals


def _check_host(confined: Confined, env: Mapping[str, str], host: Host) -> None:
    what = "its `sandbox`" if confined.sandbox is not None else "its `limits`"
    if not host.linux:
        raise SandboxRefusedError(f"{what} cannot be enforced: that needs Linux")
    if any(name.startswith("LD_") for name in env):
        raise SandboxRefusedError(
            f"{what} cannot be enforced with variables that begin with `LD_`: they act before it does"
        )
    if confined.limits is not None and confined.limits.processes is not None:
        _check_processes(host)
    if confined.sandbox is None:
        return
    if filter_of(host.machine, network=True, landlock=True) is None:
        raise SandboxRefusedError(
            f"{what} cannot be enforced on this processor ({host.machine}); x86_64 and aarch64 can"
        )
    if host.bwrap is None:
        _check_landlock(confined.sandbox, host)


def _check_processes(host: Host) -> None:
    because = "`limits.processes` cannot be enforced: "
    if host.root:
        raise SandboxRefusedError(because + "the kernel exempts root. Run the gateway as another user, or remove it")
    if problem := host.abilities["user_namespace"]:
        raise SandboxRefusedError(
            f"{because}without a user namespace ({problem}) the kernel counts all processes of the user together. "
            "Allow user namespaces, or remove it and limit the container or service instead"
        )


def _check_landlock(sandbox: Sandbox, host: Host) -> None:
    abi, step = host.abilities["abi"], _bubblewrap_step(host)
    if abi < landlock.MIN_ABI:
        has = f"has version {abi}" if abi else "has none"
        raise SandboxRefusedError(
            f"its `sandbox` cannot be enforced: {host.bwrap_problem}, and Landlock is needed in version "
            f"{landlock.MIN_ABI} (Linux 6.12), but this kernel {has}. {step}"
        )
    if not sandbox.network and (problem := host.abilities["network_namespace"]):
        raise SandboxRefusedError(
            f"`network: false` cannot be enforced: {host.bwrap_problem}, and without a network namespace ({problem}) "
            f"Landlock would leave UDP and unix sockets open. {step}, or set `network: true`"
        )


def _bubblewrap_step(host: Host) -> str:
    if host.bwrap_problem == _NOT_INSTALLED:
        return "Install bubblewrap (`apt install bubblewrap`)"
    return "Allow bubblewrap to make user namespaces"


def _check_starter(program: str, host: Host) -> None:
    """Programs that start servers elsewhere, or download them first."""
    if program in ("docker", "podman"):
        raise SandboxRefusedError(
            f"a container that `{program}` starts is not in its `sandbox`. Limit the container instead"
        )
    if host.bwrap is None and program in DOWNLOADERS:
        raise SandboxRefusedError(
            f"`{program}` cannot be confined by Landlock, which lets it set no modes of files: {host.bwrap_problem}. "
            f"{_bubblewrap_step(host)}, or install the server itself and name its program"
        )


# ---------------------------------------------------------------------- what it may reach


def access_of(
    program: Path,
    args: Sequence[str],
    env: Mapping[str, str],
    cwd: Path | None,
    sandbox: Sandbox,
    host: Host,
    protected: Sequence[Path],
) -> Access:
    """Raises SandboxRefusedError."""
    guarded = [Path(os.path.realpath(path)) for path in protected]
    for problem in path_problems(sandbox, protected, host.own_files):
        raise SandboxRefusedError(problem)
    for folder in (*PROGRAM_FOLDERS, *SYSTEM_FILES):
        if any(one.is_relative_to(folder) for one in guarded):
            raise SandboxRefusedError(
                "the state folder or the configuration lies in a folder that all programs must read"
            )
    all_needed = needed_paths(program, args, cwd, env, [_absolute(path) for path in sandbox.write])
    needed = [path for path in all_needed if path.exists() and not _reaches(path, guarded)]
    if cwd is not None and os.path.realpath(cwd) != os.path.realpath(host.temporary):
        if problem := _path_problem(cwd, "its `cwd`", guarded):
            raise SandboxRefusedError(problem)
        needed.append(cwd)
    read = dict.fromkeys((*map(Path, (*PROGRAM_FOLDERS, *SYSTEM_FILES)), program, *needed, *sandbox.read))
    write = dict.fromkeys(_absolute(path) for path in sandbox.write)
    # What is inside of a folder that it writes to is left out: the server could have put a link there meanwhile.
    inside = [path for path in map(_absolute, read) if any(is_in(path, each) for each in write)]
    outermost = [path for path in write if not any(path != each and path.is_relative_to(each) for each in write)]
    return Access(tuple(path for path in map(_absolute, read) if path not in inside), tuple(outermost))


def path_problems(sandbox: Sandbox, protected: Sequence[Path], own_files: Sequence[str] = ()) -> Iterator[str]:
    """What is wrong with paths of `read` and `write`, whatever the machine can enforce."""
    guarded = [Path(os.path.realpath(path)) for path in protected]
    own = [Path(os.path.realpath(path)) for path in own_files]
    for key, paths in (("read", sandbox.read), ("write", sandbox.write)):
        for number, path in enumerate(paths, 1):
            named = f"path {number} of `sandbox.{key}`"
            if problem := _path_problem(path, named, guarded):
                yield problem
            elif key == "write" and any(_overlap(Path(os.path.realpath(path)), one) for one in own):
                yield f"{named} would let it change Pointsman or its Python. Name folders beside them"


def unseen_arguments(
    argv: Sequence[str], env: Mapping[str, str], cwd: Path | None, sandbox: Sandbox, protected: Sequence[Path]
) -> tuple[str, ...]:
    """What `Launch.unseen` would be, whatever the machine can enforce; empty also if it would not be started."""
    nothing = Host(Abilities(abi=0, user_namespace="", network_namespace=""))
    try:
        program = find_program(argv[0], cwd, env)
        access = access_of(program, argv[1:], env, cwd, sandbox, nothing, protected)
    except (OSError, SandboxRefusedError):
        return ()
    return tuple(_unseen(argv[1:], cwd, access, protected))


def _unseen(args: Sequence[str], cwd: Path | None, access: Access, protected: Sequence[Path]) -> Iterator[str]:
    """A sentence for each argument that is an existing path out of reach. It names no path: clients may see it."""
    guarded = [Path(os.path.realpath(path)) for path in protected]
    allowed = [Path(os.path.realpath(path)) for path in (*access.read, *access.write)]
    for number, argument in enumerate(args, 1):
        path = argument_path(argument, cwd)
        if path is None or str(path) in _ALWAYS_THERE or not _exists(path):
            continue
        real = Path(os.path.realpath(path))
        if any(real.is_relative_to(each) or each.is_relative_to(real) for each in allowed):
            continue
        if real.is_relative_to("/dev") or real.is_relative_to("/proc"):
            continue
        named = f"its `sandbox` does not show argument {number} of `args`"
        if _reaches(path, guarded):
            yield f"{named}, which would let it reach the state folder or the configuration: name a path beside them"
        else:
            yield f"{named}: add that path to `sandbox.read`"


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # longer than a name can be, for example
        return False


def _path_problem(path: Path, named: str, guarded: Sequence[Path]) -> str:
    if not path.exists():
        return f"{named} does not exist. Create it, or correct the path"
    if _reaches(path, guarded):
        return f"{named} would let it reach the state folder or the configuration. Name folders beside them"
    return ""


def _reaches(path: Path, guarded: Sequence[Path]) -> bool:
    """Whether it contains what is guarded, or is in it. The home folder may be the state folder, as in our image:
    caches in it, whose names begin with a dot, are not the gateway's.
    """
    real = Path(os.path.realpath(path))
    for number, one in enumerate(guarded):
        if one.is_relative_to(real):
            return True
        if real.is_relative_to(one) and not (number == 0 and real.relative_to(one).parts[0].startswith(".")):
            return True
    return False


def _overlap(path: Path, other: Path) -> bool:
    return path.is_relative_to(other) or other.is_relative_to(path)


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))


# ---------------------------------------------------------------------- the ways to start it


def _limits(limits: ServerLimits | None) -> Confinement:
    memory, processes = (limits.memory, limits.processes) if limits is not None else (None, None)
    return Confinement(memory=memory, processes=processes, own_network=False, rules=None)


def _launched(wanted: Confinement, program: str | Path, argv: Sequence[str], host: Host) -> tuple[str, ...]:
    return (*host.launcher, json.dumps(wanted), str(program), *argv)


@dataclass(frozen=True, slots=True)
class _Start:
    """What is to be started, and what it may use."""

    program: Path
    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: Path | None
    sandbox: Sandbox
    access: Access
    wanted: Confinement
    host: Host


def _by_landlock(start: _Start) -> Launch:
    host, access, wanted, network = start.host, start.access, start.wanted, start.sandbox.network
    program_filter = filter_of(host.machine, network=network, landlock=True)
    assert program_filter is not None  # `_check_host`
    rules = Rules(
        read=[*map(str, access.read), *_KERNEL_FILES],
        write=[*map(str, access.write), *_DEVICES],
        filter=program_filter.hex(),
        temporary=host.temporary,
    )
    confinement = Confinement(
        memory=wanted["memory"], processes=wanted["processes"], own_network=not network, rules=rules
    )
    return Launch(
        _launched(confinement, start.program, start.argv, host),
        start.env,
        start.cwd or Path(host.temporary),
        temporary=host.temporary,
        how=f"Landlock {host.abilities['abi']} ({host.bwrap_problem})",
    )


def _by_bubblewrap(bwrap: str, start: _Start) -> Launch:
    env, host, network = start.env, start.host, start.sandbox.network
    wanted: Confinement = start.wanted
    own_tmp = {name: "/tmp" for name in ("TMPDIR", "TMP", "TEMP") if name in env}  # noqa: S108 - it is its own
    home = env.get("HOME", "")
    arguments = [
        *_NAMESPACES,
        *(() if network else ("--unshare-net",)),
        *_HARDENING,
        *("--seccomp", FILTER_HANDLE),
        *_own_folder("/tmp"),  # noqa: S108
        *(_own_folder(os.path.abspath(home)) if home.startswith("/") and os.path.abspath(home) != "/" else ()),
        *_mounts(start.access),
        *("--proc", "/proc", "--dev", "/dev"),
        *_own_folder("/dev/shm"),  # noqa: S108
        *("--remount-ro", "/", "--chdir", str(start.cwd or "/tmp")),  # noqa: S108
    ]
    started: tuple[str, ...] = (bwrap, *arguments, "--", str(start.program), *start.argv[1:])
    if wanted["processes"] is not None:
        wanted = {**wanted, "processes": wanted["processes"] + _BWRAP_PROCESSES}
    if wanted["processes"] is not None or wanted["memory"] is not None:
        started = _launched(wanted, bwrap, started, host)
    return Launch(
        started,
        {**env, **own_tmp},
        filter=filter_of(host.machine, network=network, landlock=False),
        wrapped=True,
        how="bubblewrap",
    )


def _own_folder(path: str) -> tuple[str, ...]:
    return ("--perms", "0700", "--size", str(MIN_ROOM), "--tmpfs", path)


def _mounts(access: Access) -> Iterator[str]:
    """Outer folders first, so that what is in them is mounted over them. A path with links in it is also mounted where
    the links lead.
    """
    covered: list[Path] = []
    for path in sorted((*access.read, *access.write), key=lambda each: len(each.parts)):
        writable, real = path in access.write, Path(os.path.realpath(path))
        if not writable and (not path.exists() or any(path.is_relative_to(each) for each in covered)):
            continue
        if path.is_symlink() and str(path) in PROGRAM_FOLDERS:
            yield from ("--symlink", os.readlink(path), str(path))
            covered.append(path)
            continue
        for target in dict.fromkeys((real, path)):
            yield from ("--bind" if writable else "--ro-bind", str(real), str(target))
            if not writable:
                covered.append(target)


# ---------------------------------------------------------------------- what the machine can do


def this_host() -> Host:
    """Ask the kernel and bubblewrap, once each. Starts processes: not for the event loop."""
    if not sys.platform.startswith("linux"):
        return Host(Abilities(abi=0, user_namespace="", network_namespace=""), linux=False)
    import sysconfig

    own = (sysconfig.get_path("stdlib"), sys.executable, str(Path(__file__).parents[3]))
    prefix = (sys.prefix,) if sys.prefix != sys.base_prefix else ()
    host = Host(
        _abilities(),
        machine=os.uname().machine,
        root=os.geteuid() == 0,
        temporary=os.path.realpath(tempfile.gettempdir()),
        own_files=(*own, *prefix),
    )
    found = shutil.which("bwrap")
    if found is None:
        return host
    problem = _bwrap_problem(found)
    if problem:
        return replace(host, bwrap_problem=f"bubblewrap does not work here ({problem})")
    return replace(host, bwrap=found, bwrap_problem="", own_files=(*host.own_files, found))


@functools.cache
def _abilities() -> Abilities:
    none = Abilities(abi=0, user_namespace="it could not be tried", network_namespace="it could not be tried")
    try:
        argv = (*Host(none).launcher, "probe")
        printed = subprocess.run(argv, capture_output=True, timeout=_PROBE_S, env={}, check=True).stdout  # noqa: S603
        found: Abilities = json.loads(printed)
    except (OSError, ValueError, subprocess.SubprocessError):
        return none
    return found


@functools.cache
def _bwrap_problem(bwrap: str) -> str:
    """Why a sandbox like ours cannot be made; empty: it can."""
    tried = (*_NAMESPACES, "--unshare-net", *_HARDENING, "--ro-bind", "/", "/", *_own_folder("/tmp"))  # noqa: S108
    argv = (bwrap, *tried, "--proc", "/proc", "--dev", "/dev", "--", bwrap, "--version")
    try:
        done = subprocess.run(argv, capture_output=True, timeout=_PROBE_S, env={}, check=False)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return "it could not be started"
    said = done.stderr.decode(errors="replace").strip().splitlines()
    return "" if done.returncode == 0 else (said[-1][:200] if said else f"it exited with code {done.returncode}")


def delete_unused(parent: str) -> None:
    """Delete temporary folders of servers that have ended, however they ended. Not for the event loop."""
    import fcntl

    with os.scandir(parent) as entries:
        ours = [
            one.path for one in entries if one.name.startswith(landlock.TEMPORARY) and one.is_dir(follow_symlinks=False)
        ]
    for path in ours:
        try:
            if os.lstat(path).st_uid != os.geteuid():
                continue
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # By a program: a server can nest folders deeper than Python can follow.
            subprocess.run(("rm", "-rf", "--", path), stderr=subprocess.DEVNULL, timeout=_PROBE_S, check=False)  # noqa: S603, S607
        except (OSError, subprocess.SubprocessError):
            pass  # it is in use
        finally:
            os.close(handle)
