"""Keeps large results for an hour in the state folder: one encrypted file each, within a budget.

A file is `results/<owner>/<handle>`; the owner is a hash of a token's id and secret hash. So a reader needs no index,
and the results of a revoked token are one folder. All methods work on the disk and belong on one thread.
"""

from __future__ import annotations

import hmac
import logging
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any

from msgspec import Struct

from pointsman.catalog.identities import MARK, is_identity
from pointsman.core import wire
from pointsman.core.model import WallClock
from pointsman.core.sealing import SEALED_BYTES, SealError, Sealing
from pointsman.router.gateway.large_results.pieces import LargeText

FOLDER = "results"
KEEP_S = 3600.0
MAX_FILES = 10_000
_PURPOSE = b"stored results"
_VERSION = 1
_HANDLE_BYTES = 16
_HANDLE = re.compile(r"(?:[0-9a-f]{8}\.)?[0-9a-f]{32}")  # with the replica that alone has it, if that is so

logger = logging.getLogger(__name__)


class StoredResult(Struct, frozen=True):
    """The parts of a result that a model reads, and where it came from."""

    project_id: str | None
    tool_key: str
    text: str  # all text blocks, one per line
    structured: bytes  # `structuredContent` as JSON; empty: there is none


class NewResult(Struct, frozen=True):
    """A result to store, with the same parts."""

    project_id: str | None
    tool_key: str
    text: LargeText
    structured: LargeText


class _File(Struct, frozen=True):
    owner: str
    size: int
    written: float  # wall clock


class ResultStore:
    """Over budget the oldest files are deleted first. One token has at most half, so it cannot displace all others."""

    def __init__(
        self,
        state_dir: Path,
        keys: Sequence[str],
        budget: Callable[[], int],
        clock: WallClock = time.time,
        replica: str = "",
        *,
        with_older: bool = False,
    ) -> None:
        """`replica`: the id of this gateway, if others cannot read its folder; handles then name it.

        `with_older`: replicas of an earlier version may read it during an update; they can open sealed text only.
        """
        self.replica = replica
        self._with_older = with_older
        self._folder = state_dir / FOLDER
        self._codec = Sealing([hmac.digest(key.encode(), _PURPOSE, "sha256") for key in keys])
        self._budget = budget
        self._clock = clock
        self._files: dict[Path, _File] | None = None  # oldest first; None: the folder has not been read yet
        self._failing = False

    def put(self, owner: str, handle: str, result: NewResult) -> bool:
        """Store a result. False: it is too large for the budget, or the disk refused it."""
        head = _head(owner, handle, result, self._clock())
        pieces = chain((head,), result.text.pieces(), result.structured.pieces())
        if self._with_older:
            text = self._codec.seal(b"".join(pieces)).encode()
            sealed, size = iter((text,)), len(text)
        else:
            sealed = self._codec.seal_pieces(pieces)
            size = len(head) + len(result.text) + len(result.structured) + SEALED_BYTES
        if size > self._budget() // 2:
            return False
        try:
            self._make_room(owner, size)
            self._write(self._folder / owner / handle, sealed)
            self._known()[self._folder / owner / handle] = _File(owner, size, self._clock())
        except OSError as error:
            self._failed(error)
            return False
        self._failing = False
        return True

    def get(self, owner: str, handle: str) -> StoredResult | None:
        """None: there is no such result of this owner, it has expired, or its file was modified."""
        if not is_handle(handle):
            return None
        try:
            head, result = _unpack(self._codec.unseal_bytes((self._folder / owner / handle).read_bytes()))
        except (OSError, SealError):
            return None
        if head[:3] != [_VERSION, owner, handle] or self._clock() - head[3] > KEEP_S:
            return None
        return result

    def is_elsewhere(self, handle: str) -> bool:
        """Whether another gateway has stored the result, or this one before its last start."""
        return bool(self.replica) and is_handle(handle) and "." in handle and not handle.startswith(self.replica)

    def sweep(self, owners: Collection[str]) -> None:
        """Delete what has expired, what is over budget, and the results of all other owners.

        Results of identities go when they expire: which of them may still sign in, only their next request shows.
        """
        self._files = dict(self._scan())
        for path, file in list(self._files.items()):
            kept = file.owner in owners or file.owner.startswith(MARK)
            if not kept or self._clock() - file.written > KEEP_S:
                self._delete(path)
        for folder in self._folders():
            if folder.name.startswith(MARK):
                with suppress(OSError):
                    folder.rmdir()  # if it is empty
            elif folder.name not in owners:
                shutil.rmtree(folder, ignore_errors=True)
        self._evict(lambda file: True, self._budget(), MAX_FILES)

    def _make_room(self, owner: str, size: int) -> None:
        budget = self._budget()
        self._evict(lambda file: file.owner == owner, budget // 2 - size, MAX_FILES // 2 - 1)
        self._evict(lambda file: True, budget - size, MAX_FILES - 1)

    def _evict(self, concerns: Callable[[_File], bool], most_bytes: int, most_files: int) -> None:
        """Delete the oldest of the files that `concerns` selects until the rest fits."""
        chosen = [(path, file.size) for path, file in self._known().items() if concerns(file)]
        total, count = sum(size for _, size in chosen), len(chosen)
        for path, size in chosen:
            if total <= most_bytes and count <= most_files:
                return
            self._delete(path)
            total, count = total - size, count - 1

    def _known(self) -> dict[Path, _File]:
        if self._files is None:
            self._files = dict(self._scan())
        return self._files

    def _scan(self) -> list[tuple[Path, _File]]:
        found = []
        for folder in self._folders():
            with suppress(OSError), os.scandir(folder) as entries:
                for entry in entries:
                    status = entry.stat(follow_symlinks=False)
                    found.append((Path(entry.path), _File(folder.name, status.st_size, status.st_mtime)))
        return sorted(found, key=lambda pair: pair[1].written)

    def _folders(self) -> Iterator[Path]:
        with suppress(OSError), os.scandir(self._folder) as entries:
            yield from [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]

    def _write(self, path: Path, sealed: Iterable[bytes]) -> None:
        """Raises OSError."""
        for folder in (self._folder, path.parent):
            folder.mkdir(mode=0o700, exist_ok=True)
        fresh = path.with_name(f".{path.name}")
        try:
            handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.writelines(sealed)
            fresh.replace(path)  # atomic: readers see the whole file or none
        except OSError:
            with suppress(OSError):
                fresh.unlink(missing_ok=True)
            raise

    def _delete(self, path: Path) -> None:
        self._known().pop(path, None)
        with suppress(OSError):
            path.unlink()

    def _failed(self, error: OSError) -> None:
        if not self._failing:
            self._failing = True
            logger.warning("could not store a large result (%s); large results are answered whole", error.strerror)


def replicas_in(state_dir: Path) -> list[str]:
    """The gateways that stored the results of a state folder, as their handles name them. Blocks."""
    found: set[str] = set()
    with suppress(OSError):
        for owner in os.scandir(state_dir / FOLDER):
            with suppress(OSError):
                found |= {name.partition(".")[0] for name in os.listdir(owner) if is_handle(name) and "." in name}
    return sorted(found)


def new_handle(replica: str = "") -> str:
    handle = secrets.token_hex(_HANDLE_BYTES)
    return f"{replica}.{handle}" if replica else handle


def is_handle(text: str) -> bool:
    return _HANDLE.fullmatch(text) is not None


def owner_of(token_id: str, secret_digest: str) -> str:
    """The name of a token's folder. A new token of the same name has another one."""
    name = sha256(f"{token_id}\n{secret_digest}".encode()).hexdigest()[:32]
    return f"{MARK}{name}" if is_identity(token_id) else name


def _head(owner: str, handle: str, result: NewResult, now: float) -> bytes:
    """The line before text and structured content."""
    return wire.encode([_VERSION, owner, handle, now, result.project_id, result.tool_key, len(result.text)]) + b"\n"


def _unpack(payload: bytes) -> tuple[list[Any], StoredResult]:
    """`payload` is authentic, so it has a head and what that says."""
    begin = payload.index(b"\n") + 1
    head = wire.decode(payload[:begin])
    project_id, tool_key, length = head[4:]
    text = str(memoryview(payload)[begin : begin + length], "utf-8")
    return head, StoredResult(project_id, tool_key, text, payload[begin + length :])
