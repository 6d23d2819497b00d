"""Calls a tool, from the caller's rights to the server's result: by `tool_execute`, or by its flat name."""

from __future__ import annotations

import asyncio

from pointsman.catalog.confirmation import ConfirmRules
from pointsman.catalog.definitions import KnownTool
from pointsman.catalog.flat import FlatTools
from pointsman.catalog.rights import OWNER_ID
from pointsman.catalog.service import ToolCatalogService
from pointsman.core import wire
from pointsman.core.errors import (
    BUNDLED_CODES,
    TOOL_ERROR,
    DownstreamError,
    GatewayError,
    InvalidArgumentsError,
    NotSentError,
    SignInRequiredError,
    UnknownToolError,
)
from pointsman.core.model import Caller, Json, ToolKey
from pointsman.core.rounds import long_turn
from pointsman.core.seams import (
    CONFIRMATION,
    COUNTED_ROUND,
    INVALID_PARAMS,
    BackChannel,
    FrontRequest,
    ProtocolError,
)
from pointsman.router.audit.log import AuditLog, Record
from pointsman.router.audit.rows import Ending
from pointsman.router.downstream.server.caller_accounts import CallerAccounts
from pointsman.router.downstream.server.fleet import Fleet
from pointsman.router.downstream.server.server import RESTART_S
from pointsman.router.downstream.talk.decoding import OFF_LOOP_BYTES
from pointsman.router.gateway.caller_ids import CALLER_KEY, CallerIds
from pointsman.router.gateway.caller_sign_in import CallerSignIns
from pointsman.router.gateway.check_process import CheckProcess
from pointsman.router.gateway.confirmation.gate import Gate
from pointsman.router.gateway.execute_parameters import (
    MAX_LEVELS,
    REPEATED,
    Reading,
    check_beside,
    declares_envelope,
    is_envelope,
    read_envelope,
    read_exactly,
    read_leniently,
    read_result_call,
)
from pointsman.router.gateway.large_results.large_results import RESULT_KEY, SMALL_BYTES, LargeResults
from pointsman.router.gateway.rates import Rates
from pointsman.router.gateway.results import (
    ResourceLinks,
    as_execute_result,
    failure,
    marked_as_data,
    size_undecoded,
)
from pointsman.router.gateway.send import send_to_server

RETRY_S = 0.1  # before the second attempt to send a call that found no connection; doubled each time


class Executor:
    """Calls tools. Every call has a row in the audit, written before anything is sent."""

    def __init__(
        self,
        catalog: ToolCatalogService,
        flat: FlatTools,
        fleet: Fleet,
        audit: AuditLog,
        links: ResourceLinks,
        caller_ids: CallerIds,
        check_process: CheckProcess,
        large_results: LargeResults,
        rates: Rates,
        gate: Gate,
        caller_sign_ins: CallerSignIns | None = None,
    ) -> None:
        self._catalog = catalog
        self._caller_sign_ins = caller_sign_ins
        self._flat = flat
        self._fleet = fleet
        self._audit = audit
        self._links = links
        self._caller_ids = caller_ids
        self._check_process = check_process
        self._large_results = large_results
        self._rates = rates
        self._gate = gate

    async def execute(self, request: FrontRequest, back: BackChannel, given: Json) -> Json:
        """`tool_execute`. Raises ProtocolError."""
        reading, tool = read_exactly(given), None
        try:
            if reading is not None and reading.tool_key != RESULT_KEY:
                tool = self._catalog.resolve_known(request.caller, reading.tool_key)
        except GatewayError:
            reading = None
        try:
            if reading is None:
                return await self._execute_leniently(request, back, given)
            with self._begin(request, reading.tool_key, reading.arguments, tool) as record:
                if tool is None:
                    return await self._run(request, back, record, reading)
                answer, size = await self._call(request, back, record, tool, reading)
                if size > SMALL_BYTES:
                    return await self._shortened(request, tool, answer, size)
                return as_execute_result(answer)
        except GatewayError as error:
            return failure(error, self._catalog.rights.view(request.caller))

    async def _execute_leniently(self, request: FrontRequest, back: BackChannel, given: Json) -> Json:
        """Execute a call that is not written exactly, or whose tool cannot be used now.

        Raises:
            GatewayError: also because it cannot be read; it has its row.
            ProtocolError: as `_call`.
        """
        tool_key, arguments = given.get("toolKey"), given.get("arguments")
        read: Reading | GatewayError | asyncio.CancelledError
        try:  # before the row is begun, because the row names the tool
            read = await read_leniently(self._catalog, request.caller, given)
            tool_key, arguments = read.tool_key, read.arguments
        except (GatewayError, asyncio.CancelledError) as error:
            read = error
        with self._begin(request, tool_key if isinstance(tool_key, str) else None, arguments) as record:
            if not isinstance(read, Reading):
                raise read
            record.read_as = read.read_as
            return await self._run(request, back, record, read)

    async def _run(self, request: FrontRequest, back: BackChannel, record: Record, reading: Reading) -> Json:
        """Run a call whose tool is not known yet. Raises as `_call`."""
        if reading.tool_key == RESULT_KEY:
            return await self._read_result(request, record, reading)
        asked_at = asyncio.get_running_loop().time()
        tool = await self._resolve(request.caller, reading)
        spent_s = self._wait_for_connection(tool, asked_at)
        answer, size = await self._call(request, back, record, tool, reading, spent_s)
        return await self._shortened(request, tool, answer, size)

    async def _shortened(self, request: FrontRequest, tool: KnownTool, answer: Json, size: int) -> Json:
        """Return a server's answer as `tool_execute` answers it, shortened if it is large."""
        result = as_execute_result(answer)
        if size > SMALL_BYTES and self._large_results.may_be_large(size):
            result = await self._large_results.shorten(request, tool.document.tool_key, result, size)
        return result

    async def _resolve(self, caller: Caller, reading: Reading) -> KnownTool:
        """Raises GatewayError; an unknown tool's names the nearest keys."""
        try:
            tool = await self._catalog.resolve(caller, reading.tool_key)
        except UnknownToolError:
            nearest = ", ".join(f"`{key}`" for key in self._catalog.nearest_keys(caller, reading.tool_key))
            advice = f"The nearest keys: {nearest}." if nearest else ""
            raise UnknownToolError(reading.tool_key, advice) from None
        if "beside" in reading.forms:
            check_beside(reading, tool)
        return tool

    async def call(self, request: FrontRequest, back: BackChannel, name: str, arguments: Json) -> Json:
        """Call a tool by its flat name. Raises ProtocolError, also for a name that this caller cannot call."""
        asked_at = asyncio.get_running_loop().time()
        try:  # before the row is begun, because a name may fit several servers and the row names one
            resolved: KnownTool | GatewayError = await self._flat.resolve(request.caller, name)
        except GatewayError as error:
            resolved = error
        tool_key = resolved.document.tool_key if isinstance(resolved, KnownTool) else self._likeliest_key(request, name)
        try:
            with self._begin(request, tool_key, arguments) as record:
                if isinstance(resolved, GatewayError):
                    raise resolved
                spent_s = self._wait_for_connection(resolved, asked_at)
                reading = Reading(resolved.document.tool_key, arguments)
                answer, _ = await self._call(request, back, record, resolved, reading, spent_s, enveloped=False)
                return answer
        except UnknownToolError:
            raise ProtocolError(
                INVALID_PARAMS, "Tool not found. Call `tools/list` to see the tools you can use."
            ) from None
        except GatewayError as error:
            return failure(error, "flat")

    def _likeliest_key(self, request: FrontRequest, name: str) -> str:
        keys = self._flat.keys(request.caller, name)
        return str(keys[0]) if keys else name

    def _begin(
        self, request: FrontRequest, tool_key: str | None, arguments: object, tool: KnownTool | None = None
    ) -> Record:
        """Raises AuditUnavailableError."""
        if tool is not None:
            server_id: str | None = tool.server_id
        else:
            key = ToolKey.parse(tool_key) if tool_key is not None else None
            server_id = key.server_id if key and self._fleet.servers.get(key.server_id) else None
        return self._audit.begin(request, "execute", tool_key=tool_key, server_id=server_id, arguments=arguments)

    def _wait_for_connection(self, tool: KnownTool, asked_at: float) -> float:
        """Return how long a call has waited until its server was connected, which counts against its deadline."""
        server = self._fleet.servers.get(tool.server_id)
        return max(server.connected_at - asked_at, 0.0) if server is not None else 0.0

    async def _call(
        self,
        request: FrontRequest,
        back: BackChannel,
        record: Record,
        tool: KnownTool,
        reading: Reading,
        spent_s: float = 0.0,
        *,
        enveloped: bool = True,
    ) -> tuple[Json, int]:
        """Return the server's result with its size in bytes, and finish its row. Raises GatewayError, ProtocolError.

        `enveloped`: arguments that do not match may hold the whole call once more.
        """
        server = self._fleet.servers.get(tool.server_id)
        # The session gave the definition of the tool.
        session, accounts = (server.session, server.accounts) if server is not None else (None, None)
        bundled = tool.server_id in self._catalog.bundled_servers
        if bundled or (enveloped and is_envelope(reading.arguments)):
            reading = await self._check_arguments(request.caller, reading, tool, bundled, enveloped)
            record.read_as = reading.read_as
        elif (deferred := tool.check_arguments(reading.arguments)) is not None:
            await self._check_process.settle(deferred, request.caller.token_id)
        round_number = None if self._rates.rules is None else await self._count(request, tool)
        if accounts is not None:
            await self._sign_in(request, back, record, accounts, tool)
        rules = self._catalog.rights.confirm
        gated = not rules.idle and await self._confirm(request, back, record, rules, tool, reading)
        params: Json = {"name": tool.tool_name, "arguments": reading.arguments}
        if bundled:
            params["_meta"] = {CALLER_KEY: self._caller_ids.of(request.caller)}
        try:
            try:
                result = await send_to_server(
                    self._fleet, tool.server_id, params, request, back, record, spent_s, session
                )
            except (NotSentError, SignInRequiredError) as error:
                result = await self._send_again(request, back, record, tool, params, error, spent_s)
        except DownstreamError as error:
            raise ProtocolError(error.code, error.message, error.data) from None
        result = marked_as_data(self._links.shown(request.caller, tool.server_id, result), tool.server_id)
        size = len(wire.encode(result)) if type(result.get("content")) is list else size_undecoded(result)
        ending, code = _ending(result, bundled)
        record.finish(ending, code, bytes=size)
        if result.get("resultType") == "input_required":
            result = await self._with_confirmation(request, tool, reading, result, gated)
            if round_number is not None:
                key = ToolKey(tool.server_id, tool.tool_name)
                result |= self._rates.rounds.open(request.caller, key, round_number)
        if size > OFF_LOOP_BYTES:
            await long_turn()  # looking for links took some milliseconds, and so does encoding
        return result, size

    async def _count(self, request: FrontRequest, tool: KnownTool) -> int | None:
        """Count a call, unless it is a further round of one; return the number of the round. Raises RateLimitedError.

        None: the owner's, which is not counted.
        """
        if request.caller.token_id == OWNER_ID:
            return None
        key = ToolKey(tool.server_id, tool.tool_name)
        number = self._rates.rounds.use(request.counted_round, request.caller, key)
        if not number:
            await self._rates.count("calls", request.caller, tool.server_id, tool.tool_name)
        return number

    async def _confirm(
        self,
        request: FrontRequest,
        back: BackChannel,
        record: Record,
        rules: ConfirmRules,
        tool: KnownTool,
        reading: Reading,
    ) -> bool:
        """Return whether the call needs a person's yes, which it has then. Raises GatewayError, ProtocolError."""
        rule = rules.of(request.caller, tool.server_id)
        if rule is None or not rule.applies(tool.tool_name, tool.claimed):
            return False
        if await self._gate.confirm(request, back, record, rule, tool, reading.arguments):
            await self._catalog.resolve_again(request.caller, tool)  # a person took some time
        return True

    async def _sign_in(
        self,
        request: FrontRequest,
        back: BackChannel,
        record: Record,
        accounts: CallerAccounts,
        tool: KnownTool,
        refusal: SignInRequiredError | None = None,
    ) -> None:
        """Return once the caller has an account of its own at the server. Raises GatewayError, ProtocolError."""
        assert self._caller_sign_ins is not None
        if await self._caller_sign_ins.require(request, back, record, accounts, refusal):
            await self._catalog.resolve_again(request.caller, tool)  # a person took some time

    async def _with_confirmation(
        self, request: FrontRequest, tool: KnownTool, reading: Reading, result: Json, gated: bool
    ) -> Json:
        """Let a modern client go on with a confirmed call. No server can say that a call is confirmed, or counted."""
        result = {key: value for key, value in result.items() if key not in (CONFIRMATION, COUNTED_ROUND)}
        return await self._gate.next_round(request, tool, reading.arguments, result) if gated else result

    async def _check_arguments(
        self, caller: Caller, reading: Reading, tool: KnownTool, bundled: bool, enveloped: bool
    ) -> Reading:
        """Return a call that may hold a whole call once more, with arguments that match the tool.

        Bundled servers check their own arguments.

        Raises:
            InvalidArgumentsError: they do not match, or they hold a call that has no single meaning.
        """
        arguments = reading.arguments
        mismatch: InvalidArgumentsError | None = None
        try:
            deferred = None if bundled and "arguments" not in arguments else tool.check_arguments(arguments)
            if deferred is not None:
                await self._check_process.settle(deferred, caller.token_id)
        except InvalidArgumentsError as error:
            mismatch = error
        if enveloped and is_envelope(arguments) and (mismatch is not None or not declares_envelope(tool)):
            inner = await self._unwrap(caller, reading, tool)
            if inner is not None:
                return inner
            mismatch = mismatch or InvalidArgumentsError(REPEATED)
        if mismatch is not None and not bundled:
            raise mismatch
        return reading

    async def _read_result(self, request: FrontRequest, record: Record, reading: Reading) -> Json:
        """`pointsman:result`. Raises GatewayError."""
        reading = read_result_call(reading)
        record.read_as = reading.read_as
        await self._rates.count("reads", request.caller)
        result = await self._large_results.read(request.caller, reading.arguments)
        record.finish("ok", bytes=len(wire.encode(result)))
        return result

    async def _unwrap(self, caller: Caller, reading: Reading, tool: KnownTool) -> Reading | None:
        """The innermost call in the arguments, if it is one of this tool and its own arguments match; otherwise None.

        Raises:
            InvalidArgumentsError: a call in the arguments is for another tool.
        """
        own = declares_envelope(tool)  # then an envelope can be an argument, and the outermost that matches counts
        for _ in range(MAX_LEVELS):
            inner = read_envelope(reading, tool)
            if inner is None:
                return None
            ends = not is_envelope(inner.arguments)
            if (own or ends) and await self._matches(caller, inner, tool):
                return inner
            if ends:
                return None
            reading = inner
        return None

    async def _matches(self, caller: Caller, reading: Reading, tool: KnownTool) -> bool:
        """Whether the arguments are known to match the tool."""
        try:
            if "beside" in reading.forms:
                check_beside(reading, tool)
            deferred = tool.check_arguments(reading.arguments)
            return deferred is None or await self._check_process.settle(deferred, caller.token_id)
        except InvalidArgumentsError:
            return False

    async def _send_again(
        self,
        request: FrontRequest,
        back: BackChannel,
        record: Record,
        tool: KnownTool,
        params: Json,
        error: NotSentError | SignInRequiredError,
        spent_s: float,
    ) -> Json:
        """Send a call that its server has not looked at, once the reason is gone. Raises as `_call`."""
        if isinstance(error, NotSentError):
            error.spent_s = max(error.spent_s, spent_s)
            return await self._send_when_back(request, back, record, tool, params, error)
        server = self._fleet.servers.get(tool.server_id)
        accounts = server.accounts if server is not None else None
        if accounts is None:
            raise error
        await self._sign_in(request, back, record, accounts, tool, error)
        return await send_to_server(self._fleet, tool.server_id, params, request, back, record)

    async def _send_when_back(
        self,
        request: FrontRequest,
        back: BackChannel,
        record: Record,
        tool: KnownTool,
        params: Json,
        not_sent: NotSentError,
    ) -> Json:
        """Send a call that found no connection once its server is back with the same tool. Raises as `_call`."""
        loop = asyncio.get_running_loop()
        asked_at = loop.time() - not_sent.spent_s
        retry_s = RETRY_S
        server = self._fleet.servers.get(tool.server_id)
        limit_s = min(RESTART_S, server.timeouts.call_s) if server is not None else 0.0
        while (spent_s := loop.time() - asked_at) < limit_s:
            try:
                async with asyncio.timeout(limit_s - spent_s):
                    await self._catalog.resolve_again(request.caller, tool)
            except TimeoutError:
                break
            server = self._fleet.servers.get(tool.server_id)
            session = server.session if server is not None else None
            spent_s = loop.time() - asked_at
            try:
                return await send_to_server(
                    self._fleet, tool.server_id, params, request, back, record, spent_s, session
                )
            except NotSentError as error:
                not_sent = error
            await asyncio.sleep(retry_s)
            retry_s *= 2
        raise not_sent


def _ending(result: Json, bundled: bool) -> tuple[Ending, str | None]:
    if result.get("resultType") == "input_required":
        return "input_required", None
    if not result.get("isError"):
        return "ok", None
    content = result.get("structuredContent")
    code = content.get("code") if bundled and isinstance(content, dict) else None
    return "error", code if isinstance(code, str) and code in BUNDLED_CODES else TOOL_ERROR
