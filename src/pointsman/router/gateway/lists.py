"""The lists of a caller: tools (flat), resources, templates, prompts and skills of all its servers, page by page."""

from __future__ import annotations

from pointsman.catalog.apps import supports_apps, with_app_uris
from pointsman.catalog.definitions import KnownTool
from pointsman.catalog.flat import FlatTools
from pointsman.catalog.offers import Offer, Offered, Offers
from pointsman.catalog.service import ToolCatalogService
from pointsman.core.kinds import PROMPTS, RESOURCES, SKILLS, TEMPLATES, TOOLS, ListKind
from pointsman.core.model import Caller, Json
from pointsman.core.seams import Client, Era, FrontRequest
from pointsman.router.gateway.cursors import Cursors
from pointsman.router.gateway.own_skill import OWN_ID, own_skill

KINDS = {kind.method: kind for kind in (TOOLS, RESOURCES, TEMPLATES, PROMPTS, SKILLS)}


class ListHandlers:
    def __init__(self, catalog: ToolCatalogService, flat: FlatTools, offers: Offers, cursors: Cursors) -> None:
        self._catalog = catalog
        self._flat = flat
        self._offers = offers
        self._cursors = cursors

    async def page(self, kind: ListKind, request: FrontRequest) -> Json:
        """Return one page. Raises ProtocolError for an invalid cursor."""
        caller = request.caller
        offered = await self._offered(kind, caller, request.client)
        order = (OWN_ID, *self._catalog.rights.servers_of(caller))
        cursor = request.params.get("cursor")
        shown, next_cursor = self._cursors.page(offered.offers, order, kind.method, caller, cursor)
        page: Json = {kind.field: [offer.shown for offer in shown], "ttlMs": int(offered.ttl_s * 1000)}
        if next_cursor is not None:
            page["nextCursor"] = next_cursor
        return page

    async def _offered(self, kind: ListKind, caller: Caller, client: Client) -> Offered:
        if kind is SKILLS:
            return self._with_own_skill(caller, await self._offers.listed(caller, kind))
        if kind is not TOOLS:
            return await self._offers.listed(caller, kind)
        collected = await self._catalog.collected(caller)
        named = self._flat.named(caller, self._catalog.permitted(caller, collected))
        apps = supports_apps(client.capabilities)
        offers = [
            Offer(tool.server_id, tool.tool_name, _shown(name, tool, client.era))
            for name, tool in named.items()
            if apps or not tool.for_apps_only
        ]
        return Offered(offers, collected.ttl_s)

    def _with_own_skill(self, caller: Caller, offered: Offered) -> Offered:
        """The gateway's own skill comes first; it teaches the two tools, which flat callers do not have."""
        if self._catalog.rights.is_flat(caller):
            return offered
        own = own_skill().entry
        others = [offer for offer in offered.offers if offer.shown["uri"] != own["uri"]]
        return Offered([Offer(OWN_ID, own["uri"], own), *others], offered.ttl_s)


def _shown(name: str, known: KnownTool, era: Era) -> Json:
    """Return the server's definition under our name.

    An inputSchema is required and must have the type object; in the legacy era so must an outputSchema.
    """
    tool = known.tool
    shown = {**tool, "name": name}
    if "_meta" in shown:
        shown["_meta"] = with_app_uris(known.server_id, shown["_meta"])
    if (schema := tool.get("inputSchema", {})).get("type") != "object":
        shown["inputSchema"] = {**schema, "type": "object"}
    if era == "legacy" and "outputSchema" in tool and tool["outputSchema"].get("type") != "object":
        del shown["outputSchema"]
    return shown
