"""Resources, resource templates and prompts of all servers that a caller may use, and the way back from their names."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pointsman.catalog.collecting import Lists
from pointsman.catalog.definitions import shown_entry
from pointsman.catalog.listing import Clock, Patience, Recognise, Snapshot, encoded_entry
from pointsman.catalog.naming import HAS_THE_NAME, HAS_THE_PREFIX, holders, prefix_of
from pointsman.catalog.service import ToolCatalogService
from pointsman.catalog.uris import fits, unwrapped, wrapped
from pointsman.config.model import GatewayConfig, Server
from pointsman.core.kinds import PROMPTS, RESOURCES, TEMPLATES, ListKind
from pointsman.core.model import Caller, Json, ToolSource

logger = logging.getLogger(__name__)

MAX_LOGGED = 1_000  # clashes, each said once


@dataclass(frozen=True, slots=True)
class Offer:
    """An entry of a list as a caller sees it."""

    server_id: str
    key: str  # its name or URI at the server
    shown: Json


@dataclass(frozen=True, slots=True)
class Offered:
    offers: list[Offer]
    ttl_s: float


@dataclass(frozen=True, slots=True)
class Target:
    """Where a name or URI leads."""

    server_id: str
    own: str  # the server's own word for it
    wrapped: bool = False  # the client used our form of the URI, so it gets that form back


class Offers:
    """Asks the catalog who may use what, so that one place decides."""

    def __init__(
        self,
        catalog: ToolCatalogService,
        sources: Mapping[str, ToolSource],
        *,
        clock: Clock = time.monotonic,
        patience: Patience = Patience(),  # noqa: B008 - frozen
    ) -> None:
        self._catalog = catalog
        self._lists = {
            kind: Lists(kind, _entries_of(kind), sources, clock, patience) for kind in (RESOURCES, TEMPLATES, PROMPTS)
        }
        self._logged: set[tuple[str, str, str]] = set()

    def reconfigure(self, config: GatewayConfig) -> None:
        for lists in self._lists.values():
            lists.keep_only(config.servers)

    async def close(self) -> None:
        for lists in self._lists.values():
            await lists.close()

    async def listed(self, caller: Caller, kind: ListKind) -> Offered:
        """In the order of the configuration; of two with one name the first counts, also while it is away."""
        parts, ttl_s = await self._parts(caller, kind)
        servers = self._catalog.rights.servers_of(caller)
        seen: dict[str, str] = {}
        offers: list[Offer] = []
        for server_id, server in self._usable(caller).items():
            for key, entry in self._last_known(kind, server_id, parts).items():
                name = _outside(server_id, server, kind, key)
                owner = _owner(servers, kind, name, server_id)
                if owner != server_id:
                    self._log_hidden(name, owner, server_id, HAS_THE_PREFIX)
                elif name not in seen:
                    seen[name] = server_id
                    if server_id in parts:
                        offers.append(Offer(server_id, key, {**entry, kind.key: name}))
                elif server_id in parts:
                    self._log_hidden(name, seen[name], server_id, HAS_THE_NAME)
        return Offered(offers, ttl_s)

    async def prompt(self, caller: Caller, name: str) -> Target | None:
        """None: there is no such prompt, or the caller may not use its server; the two look the same.

        A prompt of a server that is away leads there, and so does one that only such a server may have: the answer
        then says who is missing.
        """
        usable = self._usable(caller)
        owners = holders(self._catalog.rights.servers_of(caller), name)
        found = [Target(server_id, own) for server_id, own in owners if server_id in usable]
        if len(found) < 2:
            return found[0] if found else None
        parts, _ = await self._parts(caller, PROMPTS)
        still_usable = self._usable(caller)  # rights may have changed while we waited
        places = [place for place in found if place.server_id in still_usable]
        listing = (place for place in places if place.own in self._last_known(PROMPTS, place.server_id, parts))
        silent = (place for place in places if place.server_id not in parts)
        return next(listing, None) or next(silent, None)

    async def resource(self, caller: Caller, uri: str, linked: str | None = None) -> list[Target]:
        """Where a URI may lead, the likeliest first; nowhere, if the caller may use no such server.

        Servers' own URIs are understood, too: results of tools hold them, and they pass unchanged. `linked` is the
        server that last gave this caller such a link.
        """
        usable = self._usable(caller)
        known = unwrapped(uri)
        if known is not None and known[0] in usable:
            return [Target(*known, wrapped=True)]
        if len(usable) == 1 and _is_bare(*next(iter(usable.items()))):
            return [Target(next(iter(usable)), uri)]
        bare = [server_id for server_id, server in usable.items() if _is_bare(server_id, server)]
        by_rank = [*bare, *(server_id for server_id in usable if server_id not in bare)]
        order = [linked] if linked is not None else []
        order += [*await self._listing(caller, uri, by_rank), *bare]
        still_usable = self._usable(caller)  # rights may have changed while we waited
        return [Target(server_id, uri) for server_id in dict.fromkeys(order) if server_id in still_usable]

    async def _listing(self, caller: Caller, uri: str, by_rank: Iterable[str]) -> list[str]:
        """The servers that list a resource of this URI, then those with a template that fits."""
        resources, _ = await self._parts(caller, RESOURCES)
        templates, _ = await self._parts(caller, TEMPLATES)
        listing = [one for one in by_rank if uri in self._last_known(RESOURCES, one, resources)]
        fitting = [
            one
            for one in by_rank
            if any(key == uri or fits(key, uri) for key in self._last_known(TEMPLATES, one, templates))
        ]
        return listing + fitting

    def _last_known(self, kind: ListKind, server_id: str, parts: Mapping[str, Snapshot[Json]]) -> Mapping[str, Json]:
        """What a server lists, or last did if it is away: its names stay its own, and no other gets its requests."""
        part = parts.get(server_id) or self._lists[kind].last_list(server_id)
        return part.items if part is not None else {}

    async def _parts(self, caller: Caller, kind: ListKind) -> tuple[dict[str, Snapshot[Json]], float]:
        max_age_s = self._catalog.rights.config.limits.list_max_age_s
        collected = await self._lists[kind].collect(lambda: self._catalog.usable_servers(caller), max_age_s)
        return collected.parts, collected.ttl_s

    def _usable(self, caller: Caller) -> dict[str, Server]:
        servers = self._catalog.rights.servers_of(caller)
        return {server_id: servers[server_id] for server_id in self._catalog.usable_servers(caller)}

    def _log_hidden(self, name: str, first: str, second: str, why: str) -> None:
        clash = (name, first, second)
        if first == second or clash in self._logged or len(self._logged) >= MAX_LOGGED:
            return
        self._logged.add(clash)
        logger.warning("%.200r of server %s is hidden: %s", name, second, why.format(first))


def outside(server_id: str, server: Server, uri: str) -> str:
    """A resource's URI, or a template, as clients see it."""
    return uri if _is_bare(server_id, server) else wrapped(server_id, uri)


def _outside(server_id: str, server: Server, kind: ListKind, key: str) -> str:
    return prefix_of(server_id, server) + key if kind is PROMPTS else outside(server_id, server, key)


def _owner(servers: Mapping[str, Server], kind: ListKind, name: str, server_id: str) -> str:
    """The server that a name leads to by its prefix, or a URI by its scheme; where none claims it, `server_id`."""
    if kind is not PROMPTS:
        known = unwrapped(name)
        return known[0] if known is not None and known[0] in servers else server_id
    owners = [owner for owner, _ in holders(servers, name)]
    return server_id if server_id in owners or not owners else owners[0]


def _is_bare(server_id: str, server: Server) -> bool:
    return not prefix_of(server_id, server)


def _entries_of(kind: ListKind) -> Recognise[Json]:
    """Entries as they came, without invisible text and without what could not be sent on."""

    def entries_of(source: ToolSource, entries: dict[str, Json], before: dict[str, Json]) -> dict[str, Json]:
        encoded = {key: encoded_entry(entry) for key, entry in entries.items()}
        return {key: shown_entry(entries[key], kind.key, data) for key, data in encoded.items() if data is not None}

    return entries_of
