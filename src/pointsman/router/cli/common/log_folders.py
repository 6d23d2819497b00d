"""Where logs are on a state folder: its own, and those of replicas or workers, each with a heading."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from pointsman.router.serving.log_file import log_path
from pointsman.router.serving.state_folder import LOCK, REPLICAS, WORKERS, is_held, replica_folders


class LogFolder(NamedTuple):
    """The folder of one process. `kind` and `number`: of a worker or a replica; number 0: of their parent."""

    path: Path
    kind: str = ""
    number: int = 0
    runs: bool = True

    @property
    def heading(self) -> str:
        if not self.kind:
            name = "one gateway"
        else:
            name = f"{self.kind} {self.number}" if self.number else f"parent of the {self.kind}s"
        return f"==> {name}{'' if self.runs else ', which does not run'} <=="


def shared_folder(folder: Path) -> Path | None:
    """The folder of all replicas, if this is that of one."""
    own = folder.resolve()
    return own.parent.parent if own.parent.name == REPLICAS and own.name.isdecimal() else None


def numbered_folders(folder: Path) -> list[Path]:
    """The folders of all replicas that ever ran, in the order of their numbers."""
    numbered = [path for path in (folder / REPLICAS).glob("*") if path.name.isdecimal()]
    return sorted(numbered, key=lambda path: int(path.name))


def kind_of_replicas(folder: Path) -> str:
    """What the processes below this state folder are called."""
    return "worker" if is_held(folder / REPLICAS / WORKERS) else "replica"


def gateway_logs(folder: Path) -> list[LogFolder]:
    """The folders with the logs of the processes that run on this state folder, or else of those that ran.

    Workers that their parent starts again are among them, with its own log first.
    """
    if shared_folder(folder) is not None or is_held(folder):
        return _with_logs([LogFolder(folder, runs=is_held(folder))])
    kind, running = kind_of_replicas(folder), replica_folders(folder)
    if kind == "worker":
        since = (folder / REPLICAS / WORKERS / LOCK).stat().st_mtime  # written when the parent starts
        found = [LogFolder(folder, kind)] if _written_at(folder) >= since else []
        return _with_logs(
            found
            + [
                LogFolder(one, kind, int(one.name), runs=one in running)
                for one in numbered_folders(folder)
                if one in running or _written_at(one) >= since
            ]
        )
    if running:
        return _with_logs([LogFolder(one, kind, int(one.name)) for one in running])
    gone = [LogFolder(one, kind, int(one.name), runs=False) for one in numbered_folders(folder)]
    return _with_logs([LogFolder(folder, runs=False), *gone])


def _with_logs(folders: list[LogFolder]) -> list[LogFolder]:
    return [one for one in folders if log_path(one.path).exists()]


def _written_at(folder: Path) -> float:
    try:
        return log_path(folder).stat().st_mtime
    except OSError:
        return 0.0
