"""The gateway behind the front: authenticates callers and dispatches each request to its handler."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

from pointsman.catalog.flat import FlatTools
from pointsman.catalog.offers import Offers
from pointsman.catalog.service import ToolCatalogService
from pointsman.core.errors import RateLimitedError
from pointsman.core.kinds import APPS_CAPABILITY, SKILLS_EXTENSION
from pointsman.core.kinds import TOOLS as TOOLS_KIND
from pointsman.core.model import Caller, Json, ToolKey
from pointsman.core.seams import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    BackChannel,
    Change,
    Era,
    FrontRequest,
    ProtocolError,
)
from pointsman.router.audit.log import AuditLog
from pointsman.router.audit.rows import Kind
from pointsman.router.downstream.server.fleet import Fleet
from pointsman.router.gateway.caller_ids import CallerIds
from pointsman.router.gateway.caller_sign_in import CallerSignIns
from pointsman.router.gateway.changes import ChangeHub
from pointsman.router.gateway.check_process import CheckProcess
from pointsman.router.gateway.confirmation.gate import Gate
from pointsman.router.gateway.cursors import Cursors, refuse_any
from pointsman.router.gateway.discover import discover
from pointsman.router.gateway.execute import Executor
from pointsman.router.gateway.large_results.large_results import LargeResults
from pointsman.router.gateway.large_results.store import ResultStore
from pointsman.router.gateway.lists import KINDS, ListHandlers
from pointsman.router.gateway.meta_tools import DISCOVERY, EXECUTE, described_tools
from pointsman.router.gateway.rates import Rates
from pointsman.router.gateway.reads import UNSUBSCRIBE, Reads, unavailable
from pointsman.router.gateway.results import ResourceLinks, failure
from pointsman.router.gateway.skills import Skills
from pointsman.router.gateway.subscriptions import ResourceSubscriptions
from pointsman.router.observe.context_use import ContextUse
from pointsman.router.observe.usage import UsageMemory
from pointsman.router.serving.shares import TokenShares

Handler = Callable[[FrontRequest, BackChannel], Awaitable[Json]]


class PointsmanGateway:
    """Fits `core.seams.Gateway`."""

    def __init__(
        self,
        catalog: ToolCatalogService,
        offers: Offers,
        fleet: Fleet,
        audit: AuditLog,
        cursors: Cursors,
        usage: UsageMemory,
        caller_ids: CallerIds,
        shares: TokenShares,
        store: ResultStore,
        context_use: ContextUse,
        rates: Rates,
        gate: Gate,
        caller_sign_ins: CallerSignIns | None = None,
    ) -> None:
        self._catalog = catalog
        self.client_connected: Callable[[bool], None] = lambda searches: None  # called when one may search, or does
        self.identify = catalog.identify
        self.still_valid = catalog.still_valid
        self.callers_of = catalog.callers_of
        self._shares = shares
        self._rates = rates
        self._usage = usage
        self._context_use = context_use
        self._audit = audit
        self._flat = FlatTools(catalog)
        links = ResourceLinks()
        self._check_process = CheckProcess()
        self.large_results = LargeResults(catalog, store)
        self.gate = gate
        self._executor = Executor(
            catalog,
            self._flat,
            fleet,
            audit,
            links,
            caller_ids,
            self._check_process,
            self.large_results,
            rates,
            gate,
            caller_sign_ins,
        )
        self._lists = ListHandlers(catalog, self._flat, offers, cursors)
        reads = Reads(offers, fleet, links, audit, rates, caller_sign_ins)
        subscriptions = ResourceSubscriptions(reads, fleet)
        skills = Skills(catalog, offers, fleet, reads, audit, cursors)
        self.hub = ChangeHub(lambda: catalog.rights, subscriptions.client_uris)
        self._handlers: dict[str, Handler] = {
            "resources/read": skills.resource,
            "resources/directory/read": skills.directory,
            "skills/get": skills.get,
            "resources/subscribe": subscriptions.subscribe,
            UNSUBSCRIBE: subscriptions.unsubscribe,
            "prompts/get": reads.prompt,
            "completion/complete": reads.completion,
        }

    async def close(self) -> None:
        await self._check_process.close()
        await self.large_results.close()
        await self.gate.close()

    def tool_schema(self, caller: Caller, name: str) -> Json | None:
        """The two tools have no parameters that headers repeat."""
        return self._flat.known_schema(caller, name) if self._catalog.rights.is_flat(caller) else None

    def refused(
        self,
        code: str,
        token: str | None,
        method: str | None,
        params: Json,
        client: str,
        person: str | None = None,
    ) -> None:
        given = params.get("arguments")
        tool_key = given.get("toolKey") if isinstance(given, dict) else None
        self._audit.record_refusal(
            code,
            kind=self._kind(method, params),
            method=method or "",
            token_id=self._catalog.rights.find(token) if token else None,
            client=client,
            tool_key=tool_key if isinstance(tool_key, str) else None,
            person=person,
        )

    def may_see(self, caller: Caller, server_id: str) -> bool:
        return self._catalog.rights.may_use_server(caller, server_id)

    def may_use(self, caller: Caller, server_id: str, tool_name: str) -> bool:
        return self._catalog.may_use(caller, ToolKey(server_id, tool_name))

    def capabilities(self, caller: Caller, era: Era) -> Json:
        """Return what the gateway supports, whether or not a server that has it is connected now.

        Apps need tools under their own names, and a server that has some.
        """
        self.client_connected(False)
        flat = self._catalog.rights.is_flat(caller)
        apps = APPS_CAPABILITY if flat and self._catalog.may_have_apps(caller) else {}
        return {
            "tools": {"listChanged": True} if flat else {},
            "resources": {"subscribe": True, "listChanged": True},
            "prompts": {"listChanged": True},
            "completions": {},
            "logging": {},
            "extensions": {SKILLS_EXTENSION: {"directoryRead": True}, **apps},
        }

    async def instructions(self, caller: Caller) -> str | None:
        return await self._catalog.instructions(caller)

    async def handle(self, request: FrontRequest, back: BackChannel) -> Json:
        token_id = request.caller.token_id
        try:
            self._shares.enter(token_id)
        except RateLimitedError as error:
            if request.method != UNSUBSCRIBE:
                return self._refused(request, error)
            self._shares.enter_anyway(token_id)
        try:
            if request.method == "tools/call":
                return await self._call(request, back)
            return await self._read(request, back)
        finally:
            self._shares.leave(token_id)

    async def _read(self, request: FrontRequest, back: BackChannel) -> Json:
        kind = KINDS.get(request.method)
        if kind is TOOLS_KIND:
            self.client_connected(False)
        if kind is TOOLS_KIND and not self._catalog.rights.is_flat(request.caller):
            refuse_any(request.params.get("cursor"))
            self._context_use.listed(request.caller, request.client.name)
            return {"tools": described_tools(await self._catalog.overview(request.caller))}
        if kind is not None:
            try:
                await self._rates.count("discoveries", request.caller)
            except RateLimitedError as error:
                return self._refused(request, error)
            return await self._lists.page(kind, request)
        handler = self._handlers.get(request.method)
        if handler is None:
            raise ProtocolError(
                METHOD_NOT_FOUND, "Method not found. The gateway's `capabilities` say what it supports."
            )
        return await handler(request, back)

    def _refused(self, request: FrontRequest, error: RateLimitedError) -> Json:
        """Record and answer a request over its token's share or rate. Raises ProtocolError unless it calls a tool."""
        given = request.params.get("arguments")
        tool_key = given.get("toolKey") if isinstance(given, dict) else None
        self._audit.record_refused_request(request, error.code, self._kind(request.method, request.params), tool_key)
        if request.method == "tools/call":
            return failure(error, self._catalog.rights.view(request.caller))
        raise unavailable(error)

    def _kind(self, method: str | None, params: Json) -> Kind:
        """Return the kind of a refusal's row. A list has no row, but a refused list is recorded as a discovery."""
        if method in self._handlers:
            return "read"
        return "discovery" if method in KINDS or params.get("name") == DISCOVERY else "execute"

    def changes(self, caller: Caller) -> AsyncIterator[Change]:
        return self.hub.listen(caller)

    def _call(self, request: FrontRequest, back: BackChannel) -> Awaitable[Json]:
        """Return the call to await. Raises ProtocolError."""
        name, given = request.params.get("name"), request.params.get("arguments")
        if given is None:
            given = {}
        if type(name) is not str or type(given) is not dict:
            raise ProtocolError(INVALID_PARAMS, "tools/call needs a `name` and, if any, `arguments` as an object")
        if self._catalog.rights.is_flat(request.caller):
            return self._executor.call(request, back, name, given)
        if name == EXECUTE:
            return self._executor.execute(request, back, given)
        if name == DISCOVERY:
            return self._discover(request, given)
        self._audit.record_refused_request(request, "unknown_tool", "execute", name)
        if self._catalog.rights.view(request.caller) == "keys":
            raise ProtocolError(INVALID_PARAMS, f"Tool not found. Ask the operator for the keys that {EXECUTE} takes.")
        raise ProtocolError(INVALID_PARAMS, f"Tool not found. Find it with {DISCOVERY} and run it with {EXECUTE}.")

    async def _discover(self, request: FrontRequest, given: Json) -> Json:
        self.client_connected(True)
        answer = await discover(self._catalog, self._audit, self._usage, self._rates, request, given)
        self._context_use.answered(request.caller, answer)
        return answer
