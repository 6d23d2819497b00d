"""Skills of all servers (extension SEP-2640): their entries and folders, and a check of each file that is read.

A file is compared with the entries that the gateway holds: those of the server's last list, and those that a caller
got with `skills/get`. If it differs, the entry may be outdated, so it is fetched once more before the read is refused.
"""

from __future__ import annotations

import asyncio
import base64
from collections import OrderedDict
from collections.abc import Awaitable, Iterator, Sequence

from msgspec.structs import replace

from pointsman.catalog.definitions import encode_entry, visible_entry
from pointsman.catalog.offers import Offers, Target
from pointsman.catalog.service import ToolCatalogService
from pointsman.catalog.skills import (
    DYNAMIC,
    directory,
    mismatch,
    names_file,
    skills_around,
    skills_with,
    why_invalid,
    wrap_skill,
)
from pointsman.core.errors import UNKNOWN_RESOURCE, UNKNOWN_SKILL, DownstreamError, GatewayError, SkillMismatchError
from pointsman.core.kinds import MAX_URI_CHARS, RESOURCES
from pointsman.core.model import Caller, Json
from pointsman.core.seams import INVALID_PARAMS, METHOD_NOT_FOUND, BackChannel, FrontRequest, ProtocolError
from pointsman.providers.visible import is_visible_name
from pointsman.router.audit.log import AuditLog
from pointsman.router.downstream.server.fleet import Fleet
from pointsman.router.gateway.cursors import Cursors, refuse_any
from pointsman.router.gateway.own_skill import OwnSkill, own_skill
from pointsman.router.gateway.reads import RESOURCE_NOT_FOUND, Reads, unavailable, uri_parts
from pointsman.router.gateway.results import as_own_result

MOST_HELD = 64  # entries got with `skills/get`, of all callers; the least recently used are evicted
_MOST_REFRESHED = 3  # of the skills that a file is a part of
_GET = "skills/get"
_UNKNOWN = frozenset({RESOURCE_NOT_FOUND, INVALID_PARAMS, METHOD_NOT_FOUND})


class Skills:
    """Handles `skills/get` and `resources/directory/read`, and `resources/read` because that reads skills' files."""

    def __init__(
        self,
        catalog: ToolCatalogService,
        offers: Offers,
        fleet: Fleet,
        reads: Reads,
        audit: AuditLog,
        cursors: Cursors,
    ) -> None:
        self._catalog = catalog
        self._offers = offers
        self._fleet = fleet
        self._reads = reads
        self._audit = audit
        self._cursors = cursors
        self._held = HeldSkills()

    async def resource(self, request: FrontRequest, back: BackChannel) -> Json:
        """`resources/read`. Raises ProtocolError."""
        own = self._own(request.caller)
        file = own.files.get(request.params["uri"]) if own is not None else None
        if file is not None:
            return self._recorded(request, None, {"contents": [file]})

        async def check(target: Target, result: Json) -> None:
            await self._check(request, back, target, result)

        return await self._reads.resource(request, back, check)

    async def get(self, request: FrontRequest, back: BackChannel) -> Json:
        """`skills/get`. Raises ProtocolError."""
        uri: str = request.params["uri"]
        own = self._own(request.caller)
        if own is not None and own.entry["uri"] == uri:
            return self._recorded(request, None, {"skill": own.entry})
        for target in await self._targets(request, uri):
            result = await self._try(self._fetch(request, back, target))
            if result is not None:
                skill: Json = result["skill"]
                shown = wrap_skill(target.server_id, skill) if target.wrapped else skill
                return as_own_result({**result, "skill": shown})
        raise self._unknown(
            request, UNKNOWN_SKILL, "Skill not found. Call `skills/list` to see the skills you can use."
        )

    async def directory(self, request: FrontRequest, back: BackChannel) -> Json:
        """`resources/directory/read`. Raises ProtocolError."""
        uri, cursor = request.params["uri"], request.params.get("cursor")
        own = self._own(request.caller)
        children = directory({own.entry["uri"]: own.entry}, uri) if own is not None else None
        if children is not None:
            refuse_any(cursor)
            return self._recorded(request, None, {"resources": children})
        asked = None if cursor is None else self._cursors.unseal(cursor, _bound(uri), request.caller)
        for target in await self._targets(request, uri):
            if asked is None or asked[0] == target.server_id:
                page = await self._page(request, back, target, None if asked is None else asked[1])
                if page is not None:
                    return page
        why = "Directory not found. Give the URI of a skill without `/SKILL.md`, or of a folder in it."
        raise self._unknown(request, UNKNOWN_RESOURCE, why)

    # ------------------------------------------------------------------ which server

    def _own(self, caller: Caller) -> OwnSkill | None:
        """The gateway's own skill; None for callers that see tools under their own names instead of the two tools."""
        return None if self._catalog.rights.is_flat(caller) else own_skill()

    async def _targets(self, request: FrontRequest, uri: str) -> list[Target]:
        """The servers that may have a skill and declare the extension, or have not said yet what they declare."""
        targets = await self._offers.skill(request.caller, uri)
        servers = ((target, self._fleet.servers.get(target.server_id)) for target in targets)
        return [
            target
            for target, server in servers
            if server is not None and (server.skills is not None or server.introduction is None)
        ]

    def _unknown(self, request: FrontRequest, code: str, message: str) -> ProtocolError:
        """Also for what the caller may not use, so that its existence cannot be probed."""
        self._audit.record_refused_request(request, code, "read")
        return ProtocolError(INVALID_PARAMS, message, {"code": code, "uri": request.params["uri"][:MAX_URI_CHARS]})

    def _recorded(self, request: FrontRequest, server_id: str | None, answer: Json) -> Json:
        """Record a read that needs no request to a server. Raises ProtocolError."""
        parts = uri_parts(request.params["uri"])
        try:
            with self._audit.begin(request, "read", tool_key=None, server_id=server_id, arguments=parts):
                return answer
        except GatewayError as error:
            raise unavailable(error) from None

    # ------------------------------------------------------------------ entries

    async def _fetch(self, request: FrontRequest, back: BackChannel, target: Target) -> Json:
        """The server's answer to `skills/get`, with a valid entry, which is held from now on.

        Raises:
            SkillMismatchError: the entry is not valid.
            GatewayError, DownstreamError: see `Reads.send`.
        """

        async def check(result: Json) -> None:
            skill = result.get("skill")
            why = why_invalid(skill)
            if why is None and isinstance(skill, dict) and skill["uri"] != target.own:
                why = "it is of another skill"
            if why is not None:
                raise SkillMismatchError(target.server_id, f"its entry is not valid: {why}")

        asking = replace(request, method=_GET, params={"uri": target.own})
        parts = uri_parts(target.own)
        result = await self._reads.send(target.server_id, {"uri": target.own}, asking, back, parts, check=check)
        self._held.add(request.caller, target.server_id, result["skill"])
        return {key: value for key, value in result.items() if key != "nextCursor"}

    async def _check(self, request: FrontRequest, back: BackChannel, target: Target, result: Json) -> None:
        """Compare what was read with the entries that name it.

        Raises:
            SkillMismatchError: it differs from all of them, also from the current ones.
        """
        server = self._fleet.servers.get(target.server_id)
        if server is None or server.skills is None or result.get("resultType") == "input_required":
            return
        for uri, content in _contents(result, target.own):
            known = self._offers.known_skills(target.server_id, uri)
            around = [*known, *self._held.around(request.caller, target.server_id, uri)]
            skills = [skill for skill in around if names_file(skill, uri)] or around
            if not skills or (content is None and all(skill["resources"] == DYNAMIC for skill in skills)):
                continue
            why: str | None = "the server's answer does not contain it"
            if content is not None:
                why = await asyncio.to_thread(_differs_from_all, skills, uri, content)
            if why is not None and not await self._is_current(request, back, target, skills, uri, content):
                raise SkillMismatchError(target.server_id, why)

    async def _is_current(
        self,
        request: FrontRequest,
        back: BackChannel,
        target: Target,
        skills: Sequence[Json],
        uri: str,
        content: bytes | None,
    ) -> bool:
        """Whether the file is that of a current entry, because the entries that were held are outdated."""
        if content is None:
            return False
        for skill in list(dict.fromkeys(skill["uri"] for skill in skills))[:_MOST_REFRESHED]:
            try:
                fresh = (await self._fetch(request, back, Target(target.server_id, skill)))["skill"]
            except (GatewayError, DownstreamError):
                continue
            if skills_with({skill: fresh}, uri) and not await asyncio.to_thread(mismatch, fresh, uri, content):
                return True
        return False

    # ------------------------------------------------------------------ folders

    async def _page(
        self, request: FrontRequest, back: BackChannel, target: Target, their_cursor: str | None
    ) -> Json | None:
        """One page of a folder, from the server or from its skills' entries; None: the server has no such folder.

        Raises ProtocolError.
        """
        server = self._fleet.servers.get(target.server_id)
        if server is not None and server.skills is not None and server.skills.get("directoryRead") is not True:
            children = await self._offers.skill_directory(request.caller, target)
            if children is None:
                return None
            return self._recorded(request, target.server_id, {"resources": _shown(children, target)})
        params: Json = {"uri": target.own} if their_cursor is None else {"uri": target.own, "cursor": their_cursor}
        parts = uri_parts(target.own)
        result = await self._try(self._reads.send(target.server_id, params, request, back, parts))
        if result is None:
            return None
        entries = result.get("resources")
        page: Json = {**result, "resources": _shown(entries if isinstance(entries, list) else [], target)}
        their_next = page.pop("nextCursor", None)
        if isinstance(their_next, str) and their_next:
            bound = _bound(request.params["uri"])
            page["nextCursor"] = self._cursors.seal(target.server_id, their_next, bound, request.caller)
        return as_own_result(page)

    async def _try(self, sent: Awaitable[Json]) -> Json | None:
        """None: the server does not have it. Raises ProtocolError."""
        try:
            return await sent
        except DownstreamError as error:
            if error.code in _UNKNOWN:
                return None
            raise ProtocolError(error.code, error.message, error.data) from None
        except GatewayError as error:
            raise unavailable(error) from None


class HeldSkills:
    """Entries that callers got with `skills/get`, which need not be in a list."""

    def __init__(self) -> None:
        self._entries: OrderedDict[tuple[Caller, str, str], Json] = OrderedDict()

    def add(self, caller: Caller, server_id: str, skill: Json) -> None:
        key = (caller, server_id, skill["uri"])
        self._entries[key] = skill
        self._entries.move_to_end(key)
        if len(self._entries) > MOST_HELD:
            self._entries.popitem(last=False)

    def around(self, caller: Caller, server_id: str, uri: str) -> list[Json]:
        """The entries of the skills whose folder a file is in."""
        held = {key[2]: skill for key, skill in self._entries.items() if key[:2] == (caller, server_id)}
        return skills_around(held, uri)


def _contents(result: Json, asked: str) -> Iterator[tuple[str, bytes | None]]:
    """The parts of an answer by their URI; None: there is nothing under the URI that was asked for."""
    contents = result.get("contents")
    parts = [part for part in contents if isinstance(part, dict)] if isinstance(contents, list) else []
    if len(parts) == 1:
        yield asked, _bytes_of(parts[0])
        return
    if asked not in [part.get("uri") for part in parts]:
        yield asked, None
    for part in parts:
        if isinstance(part.get("uri"), str):
            yield part["uri"], _bytes_of(part)


def _bytes_of(part: Json) -> bytes | None:
    text, blob = part.get("text"), part.get("blob")
    if isinstance(text, str):
        return text.encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(blob, validate=True) if isinstance(blob, str) else None
    except ValueError:
        return None


def _differs_from_all(skills: Sequence[Json], uri: str, content: bytes) -> str | None:
    why: str | None = None
    for skill in skills:
        why = mismatch(skill, uri, content)
        if why is None:
            return None
    return why


def _shown(entries: Sequence[object], target: Target) -> list[Json]:
    """Usable entries as clients see them: with URIs that lead back, and without invisible text."""
    shown = []
    for entry in entries:
        if not isinstance(entry, dict) or not RESOURCES.is_usable(entry) or not is_visible_name(entry["uri"]):
            continue
        encoded = encode_entry(entry)
        if encoded is None:
            continue
        clean = visible_entry(entry, "uri", encoded)
        shown.append({**clean, "uri": target.shown(clean["uri"])})
    return shown


def _bound(uri: str) -> str:
    """What a cursor is bound to beside its caller."""
    return f"resources/directory/read {uri}"
