"""The pins of all servers in the key-value store. All functions block; call them from a thread.

`pins/SERVER/KIND` has the digests of one server and kind in one value, so that a list is pinned by one compare-and-set.
`pin-texts/SERVER/KIND/DIGEST` has a definition, for a diff: it never changes, and the pins do not depend on it.
`pin-servers/SERVER` has what the server is started with, by which a server that is renamed is known again.
`pin-seen/SERVER` has the time of its first pins.

Two marks outside of the store say that there were pins: the file `pins.json`, and a number in `state.db`, where the
audit is. A folder with neither is new, or comes from a version without pins, which has left a `state.db` in any case:
without one, other files of an earlier run say that the databases were deleted (`note_earlier_run`).
"""

from __future__ import annotations

import logging
import os
import secrets
import time
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import msgspec

from pointsman.catalog.pins import (
    INSTRUCTIONS_NAME,
    Digests,
    PinnedKind,
    Table,
    canonical_json,
    decode_table,
    encode_table,
    name_in,
)
from pointsman.config.sections.server import Server
from pointsman.core.model import Json
from pointsman.router.state.key_values import ABSENT, MAX_VALUE_BYTES, KeyValues, StateAwayError

MARKER: Final = "pins.json"
"""In the state folder: there are pins in the store. Without them, the store was lost."""

MAX_TEXT_BYTES: Final = 65_536  # of one definition, compressed
MAX_TEXTS_BYTES: Final = 16_777_216  # of one list, compressed; the diff of those beyond shows the new text only
_ORIGIN: Final = "pin-origin"
_EPOCH: Final = "pin-epoch"
_TABLES: Final = "pins/"
_TEXTS: Final = "pin-texts/"
_SERVERS: Final = "pin-servers/"
_SEEN: Final = "pin-seen/"
# Files that a run leaves, of which the first may have left others, too. `state.db` is older than pins.
_LEFT_BY_A_RUN: Final = ("servers.json", "request.key", "page.mark", "journal", "values.db.broken-*")
_DATABASES: Final = (MARKER, "values.db", "state.db")


logger = logging.getLogger(__name__)


class Stored(NamedTuple):
    table: Table
    version: int


class Origin(msgspec.Struct, frozen=True):
    """Written before the first pin."""

    salt: str
    waiting: tuple[str, ...] = ()  # servers that were configured when the pins were found to be lost
    identities: Mapping[str, str] = {}  # of these servers
    lost: bool = False  # there were pins before, and not all servers that wait because of that are approved yet

    def holds_back(self, server_id: str, server: Server, has_pins: Callable[[str], bool]) -> bool:
        """Whether a server without pins waits since the loss.

        Until all that wait are approved, one that is added may be one of those whose pins were lost. After that, one
        with the command or URL of a server that was never approved is that server.
        """
        if self.lost or server_id in self.waiting:
            return True
        if not self.identities:
            return False
        identity = identity_of(server, self.salt)
        return any(its == identity and not has_pins(one) for one, its in self.identities.items())


Key = tuple[str, PinnedKind]  # a server's id, and what is pinned


class Mark(Protocol):
    """Says, besides the file, that there are pins: whoever deletes the store may delete the file with it."""

    def exists(self) -> bool:
        """Raises StateAwayError."""
        ...

    def write(self) -> None:
        """Logs it if that fails."""
        ...


class PinStore:
    """Every method raises StateAwayError."""

    def __init__(self, values: KeyValues, state_dir: Path, mark: Mark) -> None:
        self._values = values
        self._marker = state_dir / MARKER
        self._mark = mark

    def origin(self, servers: Mapping[str, Server]) -> Origin:
        """Return what was written before the first pin; write it, if there are no pins.

        `servers` are those that wait for approval if there were pins once.
        """
        found = self._values.get(_ORIGIN)
        if found is None:
            salt, lost = secrets.token_hex(16), self._marker.exists() or self._mark.exists()
            waiting = {one: identity_of(server, salt) for one, server in servers.items()} if lost else {}
            fresh = Origin(salt, tuple(sorted(waiting)), waiting, lost)
            self._values.put(_ORIGIN, msgspec.json.encode(fresh), version=ABSENT)
            found = self._values.get(_ORIGIN)  # another gateway's, if that was faster
            if found is None:
                raise StateAwayError("The state database has lost what was written a moment ago.")
        self._write_marker()
        self._mark.write()
        return _decoded(found.value, Origin)

    def settle(self, origin: Origin) -> Origin:
        """Note that all servers were approved that waited since the loss; a server that is added now is a new one."""
        settled = msgspec.structs.replace(origin, lost=False)
        self._values.put(_ORIGIN, msgspec.json.encode(settled))
        return settled

    def epoch(self) -> int:
        """Grows with each approval."""
        found = self._values.get(_EPOCH)
        return found.version if found is not None else ABSENT

    def tables(self, server_id: str | None = None) -> dict[Key, Stored]:
        """All pins, or those of one server."""
        prefix = _TABLES if server_id is None else f"{_TABLES}{server_id}/"
        stored: dict[Key, Stored] = {}
        for key, entry in self._values.list(prefix).items():
            owner, _, kind = key.removeprefix(_TABLES).partition("/")
            stored[owner, _kind(kind)] = Stored(_table(entry.value), entry.version)
        return stored

    def put(self, key: Key, table: Table, version: int, texts: Mapping[bytes, Json]) -> int | None:
        """Pin a list if its pins have that version; return the new one, or None. `texts` are by their whole digest.

        The texts come first: a pin without its text would have no diff.
        """
        packed = _packed(key, texts)
        if packed:
            self._values.put_all(packed)
        return self._values.put(_table_key(key), encode_table(table), version=version)

    def announce(self) -> int:
        """Tell other gateways of an approval."""
        version = self._values.put(_EPOCH, b"")
        return version if version is not None else ABSENT

    def text(self, key: Key, digests: Digests) -> bytes | None:
        """The canonical definition; None: it was too long to be kept."""
        found = self._values.get(_text_key(key, digests.whole))
        return _unpacked(found.value) if found is not None else None

    def name(self, key: Key, digests: Digests) -> str:
        """The name of an approved definition; empty: it is not known, because the text was too long to be kept."""
        return INSTRUCTIONS_NAME if key[1] == "instructions" else name_in(key[1], self.text(key, digests))

    def named(
        self, server_id: str, tables: Mapping[PinnedKind, Table]
    ) -> tuple[dict[PinnedKind, dict[str, Digests]], int]:
        """The pins of a server by name, and how many have none."""
        found: dict[PinnedKind, dict[str, Digests]] = {
            kind: {self.name((server_id, kind), pin): pin for pin in table.values()} for kind, table in tables.items()
        }
        for names in found.values():
            names.pop("", None)
        return found, sum(map(len, tables.values())) - sum(map(len, found.values()))

    def identities(self) -> dict[str, str]:
        return {key.removeprefix(_SERVERS): one.value.decode() for key, one in self._values.list(_SERVERS).items()}

    def put_identity(self, server_id: str, identity: str) -> None:
        self._values.put(f"{_SERVERS}{server_id}", identity.encode())

    def seen_at(self, server_id: str) -> float:
        """When the server had its first pins; 0: that is not known."""
        found = self._values.get(f"{_SEEN}{server_id}")
        return float(int.from_bytes(found.value)) if found is not None else 0.0

    def put_seen(self, server_id: str, at: float) -> None:
        self._values.put(f"{_SEEN}{server_id}", int(at).to_bytes(8))

    def inherit(self, heir: str, removed: str) -> None:
        """Give a server the pins of another one, as far as it has none."""
        texts = self._values.list(f"{_TEXTS}{removed}/")
        if texts:
            self._values.put_all(
                {f"{_TEXTS}{heir}/{key.removeprefix(f'{_TEXTS}{removed}/')}": one.value for key, one in texts.items()}
            )
        for (_, kind), stored in self.tables(removed).items():
            self._values.put(_table_key((heir, kind)), encode_table(stored.table), version=ABSENT)

    def close(self) -> None:
        self._values.close()

    def _write_marker(self) -> None:
        """Raises StateAwayError: without it, lost pins would not be missed."""
        try:
            _write_marker(self._marker)
        except OSError as error:
            raise StateAwayError(f"{self._marker} cannot be written: {error.strerror}") from error


def note_earlier_run(state_dir: Path) -> None:
    """Have pins missed in a folder whose databases were deleted: its other files say that a gateway has run in it.

    Call it before this run writes any of them. Raises OSError.
    """
    if any((state_dir / name).exists() for name in _DATABASES):
        return
    if any(True for pattern in _LEFT_BY_A_RUN for _ in state_dir.glob(pattern)):
        logger.warning("%s has no databases, though a gateway has run in it: what was approved is not known", state_dir)
        _write_marker(state_dir / MARKER)


def _write_marker(path: Path) -> None:
    """Raises OSError."""
    if path.exists():
        return
    with suppress(FileExistsError):
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(msgspec.json.encode({"since": int(time.time())}))
            file.flush()
            os.fsync(file.fileno())


def identity_of(server: Server, salt: str) -> str:
    """A hash of the command or URL. Salted, because arguments may hold secrets that can be guessed."""
    started_with = [server.bundled, server.command, server.args, server.url]
    return blake2b(msgspec.json.encode(started_with), key=salt.encode(), digest_size=16).hexdigest()


def _table_key(key: Key) -> str:
    return f"{_TABLES}{key[0]}/{key[1]}"


def _text_key(key: Key, digest: bytes) -> str:
    return f"{_TEXTS}{key[0]}/{key[1]}/{digest.hex()}"


def _packed(key: Key, texts: Mapping[bytes, Json]) -> dict[str, bytes]:
    packed: dict[str, bytes] = {}
    room = MAX_TEXTS_BYTES
    for digest, entry in texts.items():
        value = zlib.compress(canonical_json(entry), 1)
        if len(value) <= min(MAX_TEXT_BYTES, room):
            packed[_text_key(key, digest)] = value
            room -= len(value)
    return packed


def _unpacked(value: bytes) -> bytes | None:
    unpacking = zlib.decompressobj()
    try:
        text = unpacking.decompress(value, 8 * MAX_VALUE_BYTES)
    except zlib.error:
        return None
    return text if unpacking.eof else None


def _table(value: bytes) -> Table:
    try:
        return decode_table(value)
    except ValueError as error:
        raise StateAwayError("The pins were written by a newer Pointsman, or are damaged.") from error


def _kind(text: str) -> PinnedKind:
    for kind in ("tool", "prompt", "template", "instructions"):
        if kind == text:
            return kind
    raise StateAwayError("The pins were written by a newer Pointsman, or are damaged.")


def _decoded(value: bytes, kind: type[Origin]) -> Origin:
    try:
        return msgspec.json.decode(value, type=kind)
    except msgspec.MsgspecError as error:
        raise StateAwayError("The pins were written by a newer Pointsman, or are damaged.") from error
