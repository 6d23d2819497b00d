"""Remembers across restarts which servers ran, their tools' names, and which of them ask questions, in `servers.json`.

The file holds names only and is a cache: without it servers start in the order of the configuration, and their tools
are listed and observed again. A record is valid only for the configuration entry that it was made with.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType

import msgspec

from pointsman.catalog.effects import Effect
from pointsman.catalog.overview import kept_names
from pointsman.config.sections.server import Server
from pointsman.router.downstream.bundled import secret_values

logger = logging.getLogger(__name__)

FILE = "servers.json"
_WRITE_AFTER_S = 1.0  # changes within this time are written once
_MAX_BYTES = 4 << 20  # of the file; a larger one is ignored
_SALT_CHARS = 32
# Keys of an entry that say nothing about what the server does.
_NOT_ITS_OWN = {
    *("name", "projects", "tool_permissions", "trust_annotations", "prefix", "timeouts", "pin"),
    *("confirm", "questions", "rates", "tool_rates"),
}
_MAX_NAMES = 1_000  # of each kind, in the file; there may be more in memory
_MAX_NAME_CHARS = 512
_MAX_KNOWN = 10_000  # in memory; names come from the server's own list, so there are few


class ServerRecord:
    """What one server was observed to do, through all its connections.

    A tool is *asking* if a question was certainly its own, *quiet* if it answered without one, and *suspected* if it
    may have asked a question that could not be routed. Suspicion is not kept across restarts.
    """

    __slots__ = (
        "_note_change",
        "_ran",
        "app_tools",
        "asking",
        "asks_outside_calls",
        "claims",
        "quiet",
        "suspected",
        "tools",
    )

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        self._note_change = changed
        self._ran = False
        self.asking: set[str] = set()
        self.quiet: set[str] = set()
        self.suspected: set[str] = set()
        self.tools: Sequence[str] = ()  # of its last list
        self.app_tools: frozenset[str] = frozenset()  # those of them that are for apps only
        self.claims: Mapping[str, Effect] = {}  # the effects of those that claim to do no harm
        self.asks_outside_calls = False  # over HTTP: it asks on the standalone stream instead of the stream of the call

    @property
    def ran(self) -> bool:
        """Whether it started, in this run or the last, and has not failed repeatedly since."""
        return self._ran

    @ran.setter
    def ran(self, ran: bool) -> None:
        if ran != self._ran:
            self._ran = ran
            self._note_change()

    def listed(self, names: Iterable[str], for_apps: Collection[str], claims: Mapping[str, Effect]) -> None:
        """It gave a list of its tools."""
        kept = kept_names(names)
        claimed: dict[str, Effect] = {name: claims[name] for name in kept if claims.get(name) in ("read", "write")}
        app_tools = frozenset(kept).intersection(for_apps)
        if kept != self.tools:
            self.tools = kept
            self._note_change()
        if app_tools != self.app_tools:
            self.app_tools = app_tools
            self._note_change()
        if claimed != self.claims:
            self.claims = claimed
            self._note_change()

    def may_ask(self, name: str) -> bool:
        """Whether calls of this tool take turns."""
        return name in self.asking or name in self.suspected

    def asked(self, name: str) -> None:
        if name not in self.asking:
            self.quiet.discard(name)
            self.suspected.discard(name)
            _add(self.asking, name)
            self._note_change()

    def suspect(self, name: str) -> None:
        if name not in self.asking:
            if name in self.quiet:
                self.quiet.discard(name)
                self._note_change()
            _add(self.suspected, name)

    def finished(self, name: str) -> None:
        """A call of this tool was answered, and it asked no question."""
        if name not in self.quiet and name not in self.asking:
            self.suspected.discard(name)
            _add(self.quiet, name)
            self._note_change()


class _Entry(msgspec.Struct, omit_defaults=True):
    fingerprint: str
    ran: bool = False
    asking: list[str] = []
    quiet: list[str] = []
    tools: list[str] = []
    app_tools: list[str] = []
    read_tools: list[str] = []
    write_tools: list[str] = []


_NO_TOOLS: dict[str, list[str]] = {"tools": [], "app_tools": [], "read_tools": [], "write_tools": []}
# What is left out of a file that is too large, from nothing to nearly everything.
_LEAVE_OUT: tuple[dict[str, list[str]], ...] = (
    {},
    _NO_TOOLS,
    {**_NO_TOOLS, "quiet": []},
)


class _File(msgspec.Struct):
    salt: str
    servers: dict[str, _Entry]


class ServerMemory:
    """All records. Without a folder they are kept in memory only."""

    def __init__(self, folder: Path | None = None) -> None:
        self._path = folder / FILE if folder is not None else None
        kept = _read(self._path) if self._path is not None else None
        self._salt = kept.salt if kept is not None else secrets.token_hex(_SALT_CHARS // 2)
        self._kept = kept.servers if kept is not None else {}  # of the last run, until they are used
        self._records: dict[str, tuple[str, ServerRecord]] = {}
        self._pending: asyncio.TimerHandle | None = None  # a write that is due

    def of(self, server_id: str, server: Server) -> ServerRecord:
        """The record of this server with this entry; a new one, if the entry has changed."""
        fingerprint = self._fingerprint(server)
        known = self._records.get(server_id)
        if known is not None and known[0] == fingerprint:
            return known[1]
        record = ServerRecord(self._schedule_write)
        kept = self._kept.pop(server_id, None)
        if kept is not None and kept.fingerprint == fingerprint:
            record._ran = kept.ran
            record.asking.update(kept.asking)
            record.quiet.update(name for name in kept.quiet if name not in record.asking)
            record.tools = kept_names(kept.tools)
            record.app_tools = frozenset(record.tools).intersection(kept.app_tools)
            record.claims = {**dict.fromkeys(kept.read_tools, "read"), **dict.fromkeys(kept.write_tools, "write")}
        self._records[server_id] = (fingerprint, record)
        return record

    def tool_names(self, server_id: str) -> Sequence[str]:
        """The names of the server's tools, as of its last list in this run or an earlier one."""
        known = self._records.get(server_id)
        return known[1].tools if known is not None else ()

    def app_tool_names(self, server_id: str) -> Collection[str]:
        """Those of the names whose tools are for apps only."""
        known = self._records.get(server_id)
        return known[1].app_tools if known is not None else ()

    def claims(self, server_id: str) -> Mapping[str, Effect]:
        """The effects that the tools of these names claim; a name that is missing here is destructive."""
        known = self._records.get(server_id)
        return known[1].claims if known is not None else {}

    def note_tool_names(
        self,
        server_id: str,
        names: Iterable[str],
        for_apps: Collection[str] = (),
        claims: Mapping[str, Effect] = MappingProxyType({}),
    ) -> None:
        known = self._records.get(server_id)
        if known is not None:
            known[1].listed(names, for_apps, claims)

    def keep_only(self, server_ids: Collection[str]) -> None:
        """Forget all other servers: they have been removed from the configuration."""
        for gone in (self._records.keys() | self._kept.keys()) - set(server_ids):
            self._records.pop(gone, None)
            self._kept.pop(gone, None)
            self._schedule_write()

    def flush(self) -> None:
        """Write pending changes now."""
        if self._pending is not None:
            self._pending.cancel()
            self._pending = None
            self._write(self._encoded())

    def _schedule_write(self) -> None:
        if self._pending is None and self._path is not None:
            self._pending = asyncio.get_running_loop().call_later(_WRITE_AFTER_S, self.flush)

    def _fingerprint(self, server: Server) -> str:
        """A hash of the entry. Salted, because an entry may hold secrets that can be guessed."""
        entry = server.model_dump(mode="json", exclude=_NOT_ITS_OWN)
        entry |= {"env": secret_values(server.env), "headers": secret_values(server.headers)}
        return blake2b(msgspec.json.encode(entry, order="sorted"), key=self._salt.encode(), digest_size=16).hexdigest()

    def _encoded(self) -> bytes:
        servers = dict(self._kept)
        for server_id, (fingerprint, record) in self._records.items():
            asking, quiet = _bounded(record.asking), _bounded(record.quiet)
            claiming = ([name for name, one in record.claims.items() if one == effect] for effect in ("read", "write"))
            names = list(record.tools), sorted(record.app_tools), *claiming
            servers[server_id] = _Entry(fingerprint, record.ran, asking, quiet, *names)
        for leave_out in _LEAVE_OUT:
            slim = {key: msgspec.structs.replace(entry, **leave_out) for key, entry in servers.items()}
            encoded = msgspec.json.encode(_File(self._salt, slim))
            if len(encoded) <= _MAX_BYTES:
                return encoded
        return msgspec.json.encode(_File(self._salt, {}))

    def _write(self, content: bytes) -> None:
        assert self._path is not None  # otherwise no write is scheduled
        fresh = self._path.with_name(f".{FILE}")
        try:
            fresh.unlink(missing_ok=True)
            handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            fresh.replace(self._path)  # atomic: readers see the old file or the new one
        except OSError as error:
            logger.warning("could not write %s (%s); servers are observed again after a restart", FILE, error.strerror)


def _read(path: Path) -> _File | None:
    """None: the file does not exist or is invalid, and will be replaced."""
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
        found = msgspec.json.decode(content, type=_File) if len(content) <= _MAX_BYTES else None
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return found if found is not None and len(found.salt) == _SALT_CHARS else None


def _bounded(names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if len(name) <= _MAX_NAME_CHARS and _is_text(name))[:_MAX_NAMES]


def _is_text(name: str) -> bool:
    """False for a name with a lone surrogate, which cannot be written."""
    return name.encode(errors="ignore").decode() == name


def _add(names: set[str], name: str) -> None:
    if len(names) >= _MAX_KNOWN:
        names.clear()
    names.add(name)
