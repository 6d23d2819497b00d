"""Lists resources, templates, prompts and skills of all usable servers, and resolves their names to a server."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from functools import partial
from hashlib import sha256

from msgspec import Struct

from pointsman.catalog.definitions import encode_entry, visible_entry
from pointsman.catalog.lists.cached_list import BuildItems, Clock, ListWaits, Snapshot
from pointsman.catalog.lists.list_cache import ListCache
from pointsman.catalog.names import (
    HAS_THE_NAME,
    HAS_THE_PREFIX,
    NameIndex,
    is_app_uri,
    may_expand_to,
    prefix_of,
    unwrap_uri,
    wrap_uri,
)
from pointsman.catalog.pins import PINNED, PinnedKind
from pointsman.catalog.scan.definition_watch import Definition, Named
from pointsman.catalog.scan.scan import scan_hidden
from pointsman.catalog.service import ToolCatalogService
from pointsman.catalog.skills import directory, skill_entries, skills_around, skills_with, wrap_skill
from pointsman.config.model import GatewayConfig
from pointsman.config.sections.server import Server
from pointsman.core.kinds import PROMPTS, RESOURCES, SKILLS, TEMPLATES, ListKind
from pointsman.core.model import Caller, Json, ToolSource

logger = logging.getLogger(__name__)

MAX_LOGGED = 1_000  # name clashes, each logged once


class Offer(Struct, frozen=True):
    """A resource, template, prompt or skill as a caller sees it."""

    server_id: str
    key: str  # the server's own name or URI for it
    shown: Json


class Offered(Struct, frozen=True):
    offers: list[Offer]
    ttl_s: float


class Target(Struct, frozen=True):
    """The server that a name or URI leads to."""

    server_id: str
    own: str  # the server's own name or URI
    wrapped: bool = False  # the client used the wrapped URI, so the answer has wrapped URIs, too

    def shown(self, uri: str) -> str:
        """A URI of the server's answer, as the client sees it."""
        return wrap_uri(self.server_id, uri) if self.wrapped or is_app_uri(uri) else uri


class Offers:
    """The lists of resources, templates, prompts and skills; the catalog decides who may use what."""

    def __init__(
        self,
        catalog: ToolCatalogService,
        sources: Mapping[str, ToolSource],
        *,
        clock: Clock = time.monotonic,
        waits: ListWaits = ListWaits(),  # noqa: B008 - frozen
    ) -> None:
        self._catalog = catalog
        self._sources = sources
        self._defined: dict[tuple[str, PinnedKind], dict[Named, Definition]] = {}  # by server, of its last lists
        self._lists = {
            kind: ListCache(
                kind,
                self._entries_of(kind),
                sources,
                clock,
                waits,
                on_list=partial(self._listed, kind),
                admission=catalog.admission,
            )
            for kind in (RESOURCES, TEMPLATES, PROMPTS, SKILLS)
        }
        self._logged: set[tuple[str, str, str]] = set()
        catalog.watch.also(self._definitions)

    def reconfigure(self, config: GatewayConfig) -> None:
        for lists in self._lists.values():
            lists.keep_only(config.servers)
        self._defined = {key: listed for key, listed in self._defined.items() if key[0] in config.servers}

    async def close(self) -> None:
        for lists in self._lists.values():
            await lists.close()

    def may_use(self, caller: Caller, server_id: str) -> bool:
        return self._catalog.rights.may_use_server(caller, server_id)

    async def listed(self, caller: Caller, kind: ListKind) -> Offered:
        """In the order of the configuration; of two with one name the first counts, even while its server is down."""
        parts, ttl_s = await self._parts(caller, kind)
        servers, names = self._catalog.rights.servers_of(caller), self._catalog.rights.names_of(caller)
        seen: dict[str, str] = {}
        offers: list[Offer] = []
        for server_id, server in self._usable(caller).items():
            for key, entry in self._last_known(kind, server_id, parts).items():
                name = _client_name(server_id, server, kind, key)
                owner = _owner(servers, names, kind, name, server_id)
                if owner != server_id:
                    self._log_hidden(name, owner, server_id, HAS_THE_PREFIX)
                elif name not in seen:
                    seen[name] = server_id
                    if server_id in parts:
                        shown = wrap_skill(server_id, entry) if kind is SKILLS and name != key else entry
                        offers.append(Offer(server_id, key, {**shown, kind.key: name}))
                elif server_id in parts:
                    self._log_hidden(name, seen[name], server_id, HAS_THE_NAME)
        return Offered(offers, ttl_s)

    async def prompt(self, caller: Caller, name: str) -> Target | None:
        """The server of a prompt; None: there is none, or the caller may not use it; the two are indistinguishable.

        A prompt of a server that is down resolves to that server, as does one that only such a server may have: the
        answer then names the missing server.
        """
        usable = self._usable(caller)
        owners = self._catalog.rights.names_of(caller).owners(name)
        targets = [Target(server_id, own) for server_id, own in owners if server_id in usable]
        targets = [target for target in targets if await self._is_approved(PROMPTS, target.server_id, target.own)]
        if len(targets) < 2:
            return targets[0] if targets else None
        parts, _ = await self._parts(caller, PROMPTS)
        still_usable = self._usable(caller)  # rights may have changed during the wait
        targets = [target for target in targets if target.server_id in still_usable]
        listing = (target for target in targets if target.own in self._last_known(PROMPTS, target.server_id, parts))
        silent = (target for target in targets if target.server_id not in parts)
        return next(listing, None) or next(silent, None)

    async def resource(self, caller: Caller, uri: str, linked: str | None = None) -> list[Target]:
        """The servers that a URI may belong to, the likeliest first; empty if the caller may use none of them.

        Servers' own URIs are accepted, too: tool results contain them unchanged. `linked` is the server that last
        gave this caller such a link. The URI of an app's page always names its server, and leads to no other.
        """
        targets = await self._resource_targets(caller, uri, linked)
        return [target for target in targets if await self._is_readable(target.server_id, target.own)]

    async def _resource_targets(self, caller: Caller, uri: str, linked: str | None) -> list[Target]:
        usable = self._usable(caller)
        known = unwrap_uri(uri)
        if known is not None and known[0] in usable:
            return [Target(*known, wrapped=True)]
        if is_app_uri(uri):
            return []
        if len(usable) == 1 and _is_bare(*next(iter(usable.items()))):
            return [Target(next(iter(usable)), uri)]
        bare = [server_id for server_id, server in usable.items() if _is_bare(server_id, server)]
        by_rank = [*bare, *(server_id for server_id in usable if server_id not in bare)]
        order = await self._with_skill(caller, uri, bare)
        order += [linked] if linked is not None else []
        order += [*await self._listing(caller, uri, by_rank), *bare]
        still_usable = self._usable(caller)  # rights may have changed during the wait
        return [Target(server_id, uri) for server_id in dict.fromkeys(order) if server_id in still_usable]

    async def skill(self, caller: Caller, uri: str) -> list[Target]:
        """As `resource`, for the URI of a skill or of a folder in one."""
        known = unwrap_uri(uri)
        usable = self._usable(caller)
        if known is not None and known[0] in usable:
            return [Target(*known, wrapped=True)]
        if is_app_uri(uri):
            return []
        bare = [server_id for server_id, server in usable.items() if _is_bare(server_id, server)]
        order = [*await self._with_skill(caller, uri, bare), *bare] if len(bare) > 1 else bare
        still_usable = self._usable(caller)  # rights may have changed during the wait
        return [Target(server_id, uri) for server_id in dict.fromkeys(order) if server_id in still_usable]

    def known_skills(self, server_id: str, uri: str) -> list[Json]:
        """The entries that name a file, of the server's last list, if it was ever asked for one."""
        last = self._lists[SKILLS].last_list(server_id)
        return skills_around(last.items, uri) if last is not None else []

    async def skill_directory(self, caller: Caller, target: Target) -> list[Json] | None:
        """The children of a folder by the entries of its server's skills; None: they name no such folder."""
        parts, _ = await self._parts(caller, SKILLS)
        part = parts.get(target.server_id)
        return directory(part.items, target.own) if part is not None else None

    async def _with_skill(self, caller: Caller, uri: str, server_ids: Iterable[str]) -> list[str]:
        """The servers with a skill that this file or folder is a part of: their list decides, not another's link."""
        parts, _ = await self._parts(caller, SKILLS)

        def names(server_id: str) -> bool:
            skills = self._last_known(SKILLS, server_id, parts)
            return bool(skills_with(skills, uri)) or directory(skills, uri) is not None

        return [server_id for server_id in server_ids if names(server_id)]

    async def _listing(self, caller: Caller, uri: str, by_rank: Iterable[str]) -> list[str]:
        """The servers that list a resource of this URI, then those with a template that fits."""
        resources, _ = await self._parts(caller, RESOURCES)
        templates, _ = await self._parts(caller, TEMPLATES)
        listing = [one for one in by_rank if uri in self._last_known(RESOURCES, one, resources)]
        fitting = [
            one
            for one in by_rank
            if any(key == uri or may_expand_to(key, uri) for key in self._last_known(TEMPLATES, one, templates))
        ]
        return listing + fitting

    def _last_known(self, kind: ListKind, server_id: str, parts: Mapping[str, Snapshot[Json]]) -> Mapping[str, Json]:
        """A server's list, or its last one while it is down: its names stay its own, and no other gets its requests."""
        part = parts.get(server_id) or self._lists[kind].last_list(server_id)
        return part.items if part is not None else {}

    async def _parts(self, caller: Caller, kind: ListKind) -> tuple[dict[str, Snapshot[Json]], float]:
        limits = self._catalog.rights.config.limits
        collected = await self._lists[kind].collect(
            lambda: self._catalog.readable_servers(caller), limits.list_max_age_s, limits.first_list_s
        )
        return collected.parts, collected.ttl_s

    async def fetched(self, server_id: str) -> None:
        """Fetch what of a server is pinned besides its tools. Waits no longer than a list may take."""
        source = self._sources.get(server_id)
        if source is not None and source.status.state == "running":
            lists = [self._lists[kind] for kind in (PROMPTS, TEMPLATES)]
            await asyncio.gather(*(each.fetch_now(each.list_of(source)) for each in lists))

    async def _is_approved(self, kind: ListKind, server_id: str, key: str) -> bool:
        """Whether a name may be used: its definition does not wait for approval."""
        admission = self._catalog.admission
        if not admission.pins(server_id):
            return True
        return key not in await self._held(kind, server_id) and not admission.is_refused(server_id, kind, key)

    async def _is_readable(self, server_id: str, uri: str) -> bool:
        """Whether no template that waits for approval leads to a URI, or an approved one or a resource does as well."""
        if not self._catalog.admission.pins(server_id):
            return True
        held = await self._held(TEMPLATES, server_id)
        if not any(key.startswith("{") or may_expand_to(key, uri) for key in held if key != uri) and uri not in held:
            return True
        templates, resources = (self._lists[kind].last_list(server_id) for kind in (TEMPLATES, RESOURCES))
        if resources is not None and uri in resources.items:
            return True
        return templates is not None and any(key == uri or may_expand_to(key, uri) for key in templates.items)

    async def _held(self, kind: ListKind, server_id: str) -> tuple[str, ...]:
        """The names of what waits for approval, by the server's list; without one, nothing is known to wait."""
        source, lists = self._sources.get(server_id), self._lists[kind]
        if source is None or source.status.state != "running":
            return ()
        listed, max_age_s = lists.list_of(source), self._catalog.rights.config.limits.list_max_age_s
        if listed.recent(max_age_s) is None:
            await lists.fetch_for_item(listed, max_age_s)
        last = listed.last_list()
        return (*last.changed, *last.unapproved) if last is not None else ()

    def _entries_of(self, kind: ListKind) -> BuildItems[Json]:
        """Entries as the server sent them, without invisible text and without those that cannot be encoded."""
        if kind is SKILLS:
            return skill_entries
        pinned = PINNED.get(kind)

        def entries_of(source: ToolSource, entries: dict[str, Json], before: dict[str, Json]) -> dict[str, Json]:
            encoded = {key: data for key, entry in entries.items() if (data := encode_entry(entry)) is not None}
            shown = {key: visible_entry(entries[key], kind.key, data) for key, data in encoded.items()}
            if pinned is not None:
                defined = self._defined.setdefault((source.id, pinned), {})
                for key, data in encoded.items():
                    defined[pinned, key] = _definition(key, entries[key], shown[key], data)
            return shown

        return entries_of

    def _listed(self, kind: ListKind, server_id: str, items: Mapping[str, Json]) -> None:
        """A list is built in blocks; once it is complete, forget what it no longer has, and have it scanned."""
        if (pinned := PINNED.get(kind)) is None:
            return
        before = self._defined.get((server_id, pinned), {})
        self._defined[server_id, pinned] = {named: found for named, found in before.items() if named[1] in items}
        self._catalog.watch.listed()

    def _definitions(self) -> dict[str, dict[Named, Definition]]:
        """The prompts and templates of all enabled servers that were listed, for the scan."""
        servers = self._catalog.rights.config.servers
        found: dict[str, dict[Named, Definition]] = {}
        for (server_id, _), definitions in self._defined.items():
            if server_id in servers and servers[server_id].enabled:
                found.setdefault(server_id, {}).update(definitions)
        return found

    def _usable(self, caller: Caller) -> dict[str, Server]:
        servers, waits = self._catalog.rights.servers_of(caller), self._catalog.admission.waits
        return {one: servers[one] for one in self._catalog.readable_servers(caller) if not waits(one)}

    def _log_hidden(self, name: str, owner: str, server_id: str, why: str) -> None:
        clash = (name, owner, server_id)
        if owner == server_id or clash in self._logged or len(self._logged) >= MAX_LOGGED:
            return
        self._logged.add(clash)
        logger.warning("%.200r of server %s is hidden: %s", name, server_id, why.format(owner))


def client_uri(server_id: str, server: Server, uri: str) -> str:
    """A resource's URI, or a template, as clients see it."""
    return uri if _is_bare(server_id, server) and not is_app_uri(uri) else wrap_uri(server_id, uri)


def _client_name(server_id: str, server: Server, kind: ListKind, key: str) -> str:
    return prefix_of(server_id, server) + key if kind is PROMPTS else client_uri(server_id, server, key)


def _owner(servers: Mapping[str, Server], names: NameIndex, kind: ListKind, name: str, server_id: str) -> str:
    """The server that owns a name by its prefix, or a URI by its scheme; if none does, `server_id`."""
    if kind is not PROMPTS:
        known = unwrap_uri(name)
        return known[0] if known is not None and known[0] in servers else server_id
    owners = [owner for owner, _ in names.owners(name)]
    return server_id if server_id in owners or not owners else owners[0]


def _is_bare(server_id: str, server: Server) -> bool:
    return not prefix_of(server_id, server)


def _definition(key: str, sent: Json, shown: Json, encoded: bytes) -> Definition:
    return Definition(shown, sha256(encoded).digest(), () if shown is sent else scan_hidden(key, sent))
