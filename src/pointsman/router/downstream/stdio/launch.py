"""What is started for a server, and how the configuration confines it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pointsman.config.sections.server import Sandbox, ServerLimits

AS_CONFINED = "as its entry confines it"  # in the reason of a refusal, which lasts until something is changed
FILTER_HANDLE = "@filter"  # among the arguments: the number of a file handle with `Launch.filter`


def lasts(reason: str) -> bool:
    """Whether another attempt cannot help: the sandbox cannot be enforced, and no path is missing that may come."""
    return AS_CONFINED in reason and "does not exist" not in reason


def argument_path(argument: str, cwd: Path | None) -> Path | None:
    """The path that an argument of a command names, also as `--option=PATH`; None: it cannot be one. A relative path
    begins at `cwd`: without one, the program starts in a folder of its own.
    """
    named = argument.partition("=")[2] if argument.startswith("-") else argument
    if not named or "\0" in named or not (named.startswith("/") or cwd is not None):
        return None
    return Path(os.path.abspath((cwd or Path("/")) / named))


class SandboxRefusedError(Exception):
    """The sandbox or the limits cannot be enforced. `str(error)` says why and what helps; it names no path.

    Clients may see it. For the owner, `description.with_path` puts the paths in.
    """


@dataclass(frozen=True, slots=True)
class Confined:
    """What the configuration says of one server."""

    sandbox: Sandbox | None = None
    limits: ServerLimits | None = None
    name: str = "server"  # the server's id

    def __bool__(self) -> bool:
        return self.sandbox is not None or self.limits is not None


FREE = Confined()


def protected_paths(state_dir: Path, config_path: Path | None) -> tuple[Path, ...]:
    """What no confined server may reach: the state folder, and the configuration with the secrets beside it."""
    from pointsman.router.clients.secret_files import FOLDER  # imported on demand

    if config_path is None:
        return (state_dir,)
    return (state_dir, config_path, config_path.absolute().parent / FOLDER)


@dataclass(frozen=True, slots=True)
class Launch:
    """What to start."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path | None = None
    filter: bytes | None = None
    wrapped: bool = False  # the process that we start is not the server but its parent
    downloads: Path | None = None  # a folder to make, in which the program keeps what it downloads
    temporary: str | None = None  # where unused folders of its kind are to be deleted
    how: str = ""  # for the owner
    unseen: tuple[str, ...] = ()  # a sentence for each argument that is a path out of its reach; without the path
