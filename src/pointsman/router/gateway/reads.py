"""Reads: requests that lead to one server and call no tool, each with its row in the audit."""

from __future__ import annotations

from typing import NoReturn
from urllib.parse import parse_qsl

from pointsman.catalog.names import wrap_uri
from pointsman.catalog.offers import Offers, Target
from pointsman.core import wire
from pointsman.core.errors import DownstreamError, GatewayError, RateLimitedError, ServerUnavailableError
from pointsman.core.model import Json, ToolKey
from pointsman.core.seams import INTERNAL_ERROR, INVALID_PARAMS, BackChannel, Era, FrontRequest, ProtocolError
from pointsman.router.audit.log import AuditLog
from pointsman.router.downstream.server.fleet import Fleet
from pointsman.router.gateway.links import Links
from pointsman.router.gateway.results import own_result
from pointsman.router.gateway.rounds import recorded, with_round

RESOURCE_NOT_FOUND = -32002  # as the legacy era says it; the modern one calls it invalid params
_MAX_URI_CHARS = 8_192  # looked at for the audit, which shows less; callers can send megabytes
_NOT_FOUND = frozenset({RESOURCE_NOT_FOUND, INVALID_PARAMS})


class Reads:
    """Carries `resources/read`, `prompts/get` and `completion/complete`; `send` also serves subscriptions.

    A read has a row for each server that is asked, begun before anything is sent. The row of a prompt names it; that
    of a resource names the server only, because a URI may hold a secret.
    """

    def __init__(self, offers: Offers, fleet: Fleet, links: Links, audit: AuditLog) -> None:
        self._offers = offers
        self._fleet = fleet
        self._links = links
        self._audit = audit

    async def resource(self, request: FrontRequest, back: BackChannel) -> Json:
        """`resources/read`. Raises ProtocolError."""
        uri: str = request.params["uri"]
        place, result = await self.at_resource(request, back, uri)
        contents = result.get("contents")
        if not place.wrapped or not isinstance(contents, list):
            return result
        return {**result, "contents": [_outside(place.server_id, part) for part in contents]}

    async def at_resource(self, request: FrontRequest, back: BackChannel, uri: str) -> tuple[Target, Json]:
        """Send a request that names a resource to the server that has it.

        Raises:
            ProtocolError: no server that this caller may use has it, or it refuses.
        """
        era = request.client.era
        places = await self._resource_places(request, uri)
        for place in places:
            params = with_round({"uri": place.own}, request.params)
            try:
                return place, own_result(await self.send(place.server_id, params, request, back, uri_parts(place.own)))
            except DownstreamError as refusal:
                if refusal.code not in _NOT_FOUND or place is places[-1]:
                    _refuse_resource(refusal, uri, era)
            except GatewayError as error:
                raise unavailable(error) from None
        raise no_resource(uri, era)

    async def prompt(self, request: FrontRequest, back: BackChannel) -> Json:
        """`prompts/get`. Raises ProtocolError."""
        place = await self._prompt_place(request, request.params["name"])
        arguments = request.params.get("arguments")
        params: Json = {"name": place.own}
        if arguments is not None:
            params["arguments"] = arguments
        with_round(params, request.params)
        result = await self._carried(place, params, request, back, arguments, prompt=place.own)
        messages = result.get("messages")
        if isinstance(messages, list):
            blocks = [message.get("content") for message in messages if isinstance(message, dict)]
            self._links.note(request.caller, place.server_id, blocks)
        return result

    async def completion(self, request: FrontRequest, back: BackChannel) -> Json:
        """`completion/complete`, by what it refers to. Raises ProtocolError."""
        place, own = await self._referred(request)
        argument: Json = request.params["argument"]
        params: Json = {"ref": own, "argument": argument}
        if request.params.get("context") is not None:
            params["context"] = request.params["context"]
        written = {str(argument.get("name")): argument.get("value")}  # by its name, so that a secret's is seen
        prompt = place.own if own["type"] == "ref/prompt" else None
        return await self._carried(place, params, request, back, written, prompt=prompt)

    async def send(
        self,
        server_id: str,
        params: Json,
        request: FrontRequest,
        back: BackChannel,
        arguments: object,
        prompt: str | None = None,
    ) -> Json:
        """One request to one server, with its row. `arguments` are written down where the configuration says so.

        Raises:
            AuditUnavailableError: the row could not be begun, and nothing was sent.
            GatewayError, DownstreamError: as `Downstream.request` has it.
        """
        key = str(ToolKey(server_id, prompt)) if prompt is not None else None
        with self._audit.begin(request, "read", tool_key=key, server_id=server_id, arguments=arguments) as record:
            server = self._fleet.get(server_id)
            if server is None:
                raise ServerUnavailableError(server_id, "it was taken out of the configuration")
            result = await server.request(request.method, params, request, recorded(back, request, record))
            asks = result.get("resultType") == "input_required"
            record.finish("input_required" if asks else "ok", bytes=len(wire.encode(result)))
        return result

    async def _carried(
        self,
        place: Target,
        params: Json,
        request: FrontRequest,
        back: BackChannel,
        arguments: object,
        *,
        prompt: str | None,
    ) -> Json:
        try:
            return own_result(await self.send(place.server_id, params, request, back, arguments, prompt))
        except DownstreamError as error:
            raise ProtocolError(error.code, error.message, error.data) from None
        except GatewayError as error:
            raise unavailable(error) from None

    async def _referred(self, request: FrontRequest) -> tuple[Target, Json]:
        ref: Json = request.params["ref"]
        kind, name, uri = ref.get("type"), ref.get("name"), ref.get("uri")
        if kind == "ref/prompt" and isinstance(name, str):
            place = await self._prompt_place(request, name)
            return place, {**ref, "name": place.own}
        if kind == "ref/resource" and isinstance(uri, str):
            places = await self._resource_places(request, uri)
            if not places:
                raise no_resource(uri, "modern")  # the one code that both eras know for a completion
            return places[0], {**ref, "uri": places[0].own}
        raise ProtocolError(
            INVALID_PARAMS, "`ref` must be a `ref/prompt` with a `name` or a `ref/resource` with a `uri`"
        )

    async def _prompt_place(self, request: FrontRequest, name: str) -> Target:
        """Raises ProtocolError."""
        place = await self._offers.prompt(request.caller, name)
        if place is None:
            self._refused(request, "unknown_prompt", name)
            raise _no_prompt()
        return place

    async def _resource_places(self, request: FrontRequest, uri: str) -> list[Target]:
        """Where to ask for it, the likeliest first; without any, the refusal is in the audit."""
        caller = request.caller
        places = await self._offers.resource(caller, uri, self._links.server_of(caller, uri))
        if not places:
            self._refused(request, "unknown_resource", None)
        return places

    def _refused(self, request: FrontRequest, code: str, name: str | None) -> None:
        caller = request.caller
        self._audit.refused(
            code,
            kind="read",
            method=request.method,
            token_id=caller.token_id,
            project_id=caller.project_id,
            client=request.client.name,
            request_id=request.id,
            tool_key=name,
        )


def no_resource(uri: str, era: Era) -> ProtocolError:
    """Also for one that the caller may not use: the two must not be told apart."""
    return ProtocolError(_not_found(era), "Resource not found: `resources/list` has those there are", {"uri": uri})


def _no_prompt() -> ProtocolError:
    return ProtocolError(INVALID_PARAMS, "No prompt of that name here: `prompts/list` has those there are")


def _not_found(era: Era) -> int:
    return RESOURCE_NOT_FOUND if era == "legacy" else INVALID_PARAMS


def _refuse_resource(refusal: DownstreamError, uri: str, era: Era) -> NoReturn:
    """In the words of the server; that there is no such resource has a code of each era, and names it as asked for."""
    if refusal.code not in _NOT_FOUND:
        raise ProtocolError(refusal.code, refusal.message, refusal.data) from None
    data = {**refusal.data, "uri": uri} if isinstance(refusal.data, dict) else {"uri": uri}
    raise ProtocolError(_not_found(era), refusal.message, data) from None


def unavailable(error: GatewayError) -> ProtocolError:
    """As a JSON-RPC error, because a read has no result that could say `isError`."""
    data: Json = {"code": error.code}
    if isinstance(error, RateLimitedError):
        data["retryAfterS"] = error.retry_after_s
    return ProtocolError(INTERNAL_ERROR, str(error), data)


def uri_parts(uri: str) -> Json:
    """A URI as arguments: its query by name, so that secrets in it are masked by name, too."""
    base, found, query = uri[:_MAX_URI_CHARS].partition("?")
    return {"uri": base, "query": dict(parse_qsl(query, keep_blank_values=True))} if found else {"uri": base}


def _outside(server_id: str, part: object) -> object:
    if isinstance(part, dict) and isinstance(part.get("uri"), str):
        return {**part, "uri": wrap_uri(server_id, part["uri"])}
    return part
