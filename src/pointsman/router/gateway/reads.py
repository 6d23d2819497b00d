"""Reads: requests to one server that call no tool, each with its row in the audit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from urllib.parse import parse_qsl

from pointsman.catalog.offers import Offers, Target
from pointsman.core import wire
from pointsman.core.errors import (
    UNKNOWN_PROMPT,
    UNKNOWN_RESOURCE,
    DownstreamError,
    GatewayError,
    RateLimitedError,
    ServerUnavailableError,
    SignInRequiredError,
)
from pointsman.core.model import Json, ToolKey
from pointsman.core.seams import INTERNAL_ERROR, INVALID_PARAMS, BackChannel, Era, FrontRequest, ProtocolError
from pointsman.router.audit.log import AuditLog, Record
from pointsman.router.downstream.server.caller_accounts import CallerAccounts
from pointsman.router.downstream.server.fleet import Fleet
from pointsman.router.gateway.caller_sign_in import CallerSignIns
from pointsman.router.gateway.rates import Rates
from pointsman.router.gateway.results import ResourceLinks, as_own_result
from pointsman.router.gateway.send import send_to_server

RESOURCE_NOT_FOUND = -32002  # of the legacy era; the modern era uses invalid params
_MAX_URI_CHARS = 8_192  # parsed for the audit, which shows less; callers can send megabytes
UNSUBSCRIBE = "resources/unsubscribe"  # has no rate and needs no share, because it frees a server's resources
_NOT_FOUND = frozenset({RESOURCE_NOT_FOUND, INVALID_PARAMS})

Check = Callable[[Json], Awaitable[None]]
"""Raises GatewayError if a server's result must not be used."""

CheckFrom = Callable[[Target, Json], Awaitable[None]]
"""The same, with the server that the result is from."""


class Reads:
    """Handles `resources/read`, `prompts/get` and `completion/complete`; `send` also serves subscriptions.

    A read has a row for each server it is sent to, begun before anything is sent. The row of a prompt names it; that
    of a resource names only the server, because a URI may contain a secret.
    """

    def __init__(
        self,
        offers: Offers,
        fleet: Fleet,
        links: ResourceLinks,
        audit: AuditLog,
        rates: Rates,
        caller_sign_ins: CallerSignIns | None = None,
    ) -> None:
        self._caller_sign_ins = caller_sign_ins
        self._offers = offers
        self._fleet = fleet
        self._links = links
        self._audit = audit
        self._rates = rates

    async def resource(self, request: FrontRequest, back: BackChannel, check: CheckFrom) -> Json:
        """`resources/read`. Raises ProtocolError."""
        uri: str = request.params["uri"]
        target, result = await self.send_to_resource(request, back, uri, check)
        contents = result.get("contents")
        if not isinstance(contents, list):
            return result
        return {**result, "contents": [_with_client_uri(target, part) for part in contents]}

    async def send_to_resource(
        self, request: FrontRequest, back: BackChannel, uri: str, check: CheckFrom | None = None
    ) -> tuple[Target, Json]:
        """Send a request that names a resource to the server that has it.

        Raises:
            ProtocolError: no server that this caller may use has it, or the server returned an error.
        """
        era = request.client.era
        targets = await self._resource_targets(request, uri)
        for target in targets:
            params, parts = {"uri": target.own}, uri_parts(target.own)
            try:
                checked = partial(check, target) if check is not None else None
                sent = self.send(target.server_id, params, request, back, parts, check=checked)
                return target, as_own_result(await sent)
            except DownstreamError as error:
                if error.code not in _NOT_FOUND or target is targets[-1]:
                    raise _resource_error(error, uri, era) from None
            except GatewayError as error:
                raise unavailable(error) from None
        raise no_resource(uri, era)

    async def prompt(self, request: FrontRequest, back: BackChannel) -> Json:
        """`prompts/get`. Raises ProtocolError."""
        target = await self._prompt_target(request, request.params["name"])
        arguments = request.params.get("arguments")
        params: Json = {"name": target.own}
        if arguments is not None:
            params["arguments"] = arguments
        result = await self._send_to_target(target, params, request, back, arguments, prompt=target.own)
        messages = result.get("messages")
        if not isinstance(messages, list):
            return result
        return {**result, "messages": [self._with_client_links(request, target, one) for one in messages]}

    def _with_client_links(self, request: FrontRequest, target: Target, message: object) -> object:
        if not isinstance(message, dict):
            return message
        [content] = self._links.follow(request.caller, target.server_id, [message.get("content")])
        return {**message, "content": content} if "content" in message else message

    async def completion(self, request: FrontRequest, back: BackChannel) -> Json:
        """`completion/complete`, sent to the server of its `ref`. Raises ProtocolError."""
        target, own = await self._resolve_reference(request)
        argument: Json = request.params["argument"]
        params: Json = {"ref": own, "argument": argument}
        if request.params.get("context") is not None:
            params["context"] = request.params["context"]
        recorded = {str(argument.get("name")): argument.get("value")}  # by name, so that secrets are redacted
        prompt = target.own if own["type"] == "ref/prompt" else None
        return await self._send_to_target(target, params, request, back, recorded, prompt=prompt)

    async def send(
        self,
        server_id: str,
        params: Json,
        request: FrontRequest,
        back: BackChannel,
        arguments: object,
        prompt: str | None = None,
        check: Check | None = None,
    ) -> Json:
        """Send one request to one server, with its row. `arguments` are recorded if the configuration says so.

        Raises:
            AuditUnavailableError: the row could not be begun, and nothing was sent.
            RateLimitedError: the token or the server is at its limit, and nothing was sent.
            GatewayError, DownstreamError: see `Downstream.request`; as `check` raises.
        """
        key = str(ToolKey(server_id, prompt)) if prompt is not None else None
        with self._audit.begin(request, "read", tool_key=key, server_id=server_id, arguments=arguments) as record:
            if request.method != UNSUBSCRIBE:
                await self._rates.count("reads", request.caller, server_id)
            result = await self._send_signed_in(server_id, params, request, back, record)
            if check is not None:
                await check(result)
            asks = result.get("resultType") == "input_required"
            record.finish("input_required" if asks else "ok", bytes=len(wire.encode(result)))
        return result

    async def _send_signed_in(
        self, server_id: str, params: Json, request: FrontRequest, back: BackChannel, record: Record
    ) -> Json:
        """Send it once the caller has an account of its own, where the server wants one. Raises as `send`."""
        server = self._fleet.servers.get(server_id)
        accounts = server.accounts if server is not None and request.method != UNSUBSCRIBE else None
        if accounts is None:
            return await send_to_server(self._fleet, server_id, params, request, back, record)
        await self._sign_in(request, back, record, accounts)
        try:
            return await send_to_server(self._fleet, server_id, params, request, back, record)
        except SignInRequiredError as refusal:
            await self._sign_in(request, back, record, accounts, refusal)
            return await send_to_server(self._fleet, server_id, params, request, back, record)

    async def _sign_in(
        self,
        request: FrontRequest,
        back: BackChannel,
        record: Record,
        accounts: CallerAccounts,
        refusal: SignInRequiredError | None = None,
    ) -> None:
        """Return once the caller has an account of its own at the server. Raises GatewayError, ProtocolError."""
        assert self._caller_sign_ins is not None
        took_time = await self._caller_sign_ins.require(request, back, record, accounts, refusal)
        if took_time and not self._offers.may_use(request.caller, accounts.server_id):
            raise ServerUnavailableError(accounts.server_id, "the caller can no longer use it", "Use another server.")

    async def _send_to_target(
        self,
        target: Target,
        params: Json,
        request: FrontRequest,
        back: BackChannel,
        arguments: object,
        *,
        prompt: str | None,
    ) -> Json:
        try:
            return as_own_result(await self.send(target.server_id, params, request, back, arguments, prompt))
        except DownstreamError as error:
            raise ProtocolError(error.code, error.message, error.data) from None
        except GatewayError as error:
            raise unavailable(error) from None

    async def _resolve_reference(self, request: FrontRequest) -> tuple[Target, Json]:
        ref: Json = request.params["ref"]
        kind, name, uri = ref.get("type"), ref.get("name"), ref.get("uri")
        if kind == "ref/prompt" and isinstance(name, str):
            target = await self._prompt_target(request, name)
            return target, {**ref, "name": target.own}
        if kind == "ref/resource" and isinstance(uri, str):
            targets = await self._resource_targets(request, uri)
            if not targets:
                raise no_resource(uri, "modern")  # both eras use this code for a completion
            return targets[0], {**ref, "uri": targets[0].own}
        raise ProtocolError(
            INVALID_PARAMS, "`ref` must be a `ref/prompt` with a `name` or a `ref/resource` with a `uri`"
        )

    async def _prompt_target(self, request: FrontRequest, name: str) -> Target:
        """Raises ProtocolError."""
        target = await self._offers.prompt(request.caller, name)
        if target is None:
            self._audit.record_refused_request(request, UNKNOWN_PROMPT, "read", name)
            raise _no_prompt()
        return target

    async def _resource_targets(self, request: FrontRequest, uri: str) -> list[Target]:
        """Return the servers that may have a resource, the likeliest first; if there is none, record the refusal."""
        caller = request.caller
        targets = await self._offers.resource(caller, uri, self._links.server_of(caller, uri))
        if not targets:
            self._audit.record_refused_request(request, UNKNOWN_RESOURCE, "read")
        return targets


def no_resource(uri: str, era: Era) -> ProtocolError:
    """Also for a resource that the caller may not use, so that its existence cannot be probed."""
    return ProtocolError(
        _not_found(era), "Resource not found. Call `resources/list` to see the resources you can use.", {"uri": uri}
    )


def _no_prompt() -> ProtocolError:
    return ProtocolError(INVALID_PARAMS, "Prompt not found. Call `prompts/list` to see the prompts you can use.")


def _not_found(era: Era) -> int:
    return RESOURCE_NOT_FOUND if era == "legacy" else INVALID_PARAMS


def _resource_error(error: DownstreamError, uri: str, era: Era) -> ProtocolError:
    """Return the server's error; "not found" gets the era's code and the URI that the client sent."""
    if error.code not in _NOT_FOUND:
        return ProtocolError(error.code, error.message, error.data)
    data = {**error.data, "uri": uri} if isinstance(error.data, dict) else {"uri": uri}
    return ProtocolError(_not_found(era), error.message, data)


def unavailable(error: GatewayError) -> ProtocolError:
    """Return a JSON-RPC error, because the result of a read has no `isError`."""
    data: Json = {"code": error.code}
    if isinstance(error, RateLimitedError):
        data["retryAfterS"] = error.retry_after_s
    return ProtocolError(INTERNAL_ERROR, str(error), data)


def uri_parts(uri: str) -> Json:
    """Return a URI as arguments: its query by name, so that secrets in it are redacted."""
    base, separator, query = uri[:_MAX_URI_CHARS].partition("?")
    return {"uri": base, "query": dict(parse_qsl(query, keep_blank_values=True))} if separator else {"uri": base}


def _with_client_uri(target: Target, part: object) -> object:
    if isinstance(part, dict) and isinstance(part.get("uri"), str):
        return {**part, "uri": target.shown(part["uri"])}
    return part
