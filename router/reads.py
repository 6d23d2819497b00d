"""What leads to one server and is no tool: reading a resource, getting a prompt, completing an argument."""

from __future__ import annotations

from typing import NoReturn

from pointsman.catalog.errors import DownstreamRefusal, GatewayError, RateLimited, ServerUnavailable
from pointsman.catalog.model import Json
from pointsman.catalog.offers import Offers, Place
from pointsman.catalog.uris import wrapped
from pointsman.router.downstream.fleet import Fleet
from pointsman.router.links import Links
from pointsman.router.results import own_result
from pointsman.router.rounds import with_round
from pointsman.router.seams import INTERNAL_ERROR, INVALID_PARAMS, BackChannel, Era, FrontRequest, ProtocolError

RESOURCE_NOT_FOUND = -32002  # as the legacy era says it; the modern one calls it invalid params
_NOT_FOUND = frozenset({RESOURCE_NOT_FOUND, INVALID_PARAMS})


class Reads:
    def __init__(self, offers: Offers, fleet: Fleet, links: Links) -> None:
        self._offers = offers
        self._fleet = fleet
        self._links = links

    async def resource(self, request: FrontRequest, back: BackChannel) -> Json:
        """`resources/read`. Raises ProtocolError."""
        uri: str = request.params["uri"]
        place, result = await self.at_resource(request, back, uri)
        contents = result.get("contents")
        if not place.wrapped or not isinstance(contents, list):
            return result
        return {**result, "contents": [_outside(place.server_id, part) for part in contents]}

    async def at_resource(self, request: FrontRequest, back: BackChannel, uri: str) -> tuple[Place, Json]:
        """Send a request that names a resource to the server that has it.

        Raises:
            ProtocolError: no server that this caller may use has it, or it refuses.
        """
        caller, era = request.caller, request.client.era
        places = await self._offers.resource(caller, uri, self._links.server_of(caller, uri))
        for place in places:
            params = with_round({"uri": place.own}, request.params)
            try:
                return place, own_result(await self._send(place.server_id, params, request, back))
            except DownstreamRefusal as refusal:
                if refusal.code not in _NOT_FOUND or place is places[-1]:
                    _refuse_resource(refusal, uri, era)
            except GatewayError as error:
                _unavailable(error)
        raise no_resource(uri, era)

    async def prompt(self, request: FrontRequest, back: BackChannel) -> Json:
        """`prompts/get`. Raises ProtocolError."""
        place = await self._offers.prompt(request.caller, request.params["name"])
        if place is None:
            raise _no_prompt()
        params: Json = {"name": place.own}
        if request.params.get("arguments") is not None:
            params["arguments"] = request.params["arguments"]
        result = await self._carried(place.server_id, with_round(params, request.params), request, back)
        messages = result.get("messages")
        if isinstance(messages, list):
            blocks = [message.get("content") for message in messages if isinstance(message, dict)]
            self._links.note(request.caller, place.server_id, blocks)
        return result

    async def completion(self, request: FrontRequest, back: BackChannel) -> Json:
        """`completion/complete`, by what it refers to. Raises ProtocolError."""
        place, own = await self._referred(request)
        params: Json = {"ref": own, "argument": request.params["argument"]}
        if request.params.get("context") is not None:
            params["context"] = request.params["context"]
        return await self._carried(place.server_id, params, request, back)

    async def _referred(self, request: FrontRequest) -> tuple[Place, Json]:
        ref: Json = request.params["ref"]
        kind, name, uri = ref.get("type"), ref.get("name"), ref.get("uri")
        if kind == "ref/prompt" and isinstance(name, str):
            place = await self._offers.prompt(request.caller, name)
            if place is None:
                raise _no_prompt()
            return place, {**ref, "name": place.own}
        if kind == "ref/resource" and isinstance(uri, str):
            places = await self._offers.resource(request.caller, uri, self._links.server_of(request.caller, uri))
            if not places:
                raise no_resource(uri, "modern")  # the one code that both eras know for a completion
            return places[0], {**ref, "uri": places[0].own}
        raise ProtocolError(
            INVALID_PARAMS, "`ref` must be a `ref/prompt` with a `name` or a `ref/resource` with a `uri`"
        )

    async def _carried(self, server_id: str, params: Json, request: FrontRequest, back: BackChannel) -> Json:
        try:
            return own_result(await self._send(server_id, params, request, back))
        except DownstreamRefusal as error:
            raise ProtocolError(error.code, error.message, error.data) from None
        except GatewayError as error:
            _unavailable(error)

    async def _send(self, server_id: str, params: Json, request: FrontRequest, back: BackChannel) -> Json:
        server = self._fleet.get(server_id)
        if server is None:
            raise ServerUnavailable(server_id, "it was taken out of the configuration")
        return await server.request(request.method, params, request, back)


def no_resource(uri: str, era: Era) -> ProtocolError:
    """Also for one that the caller may not use: the two must not be told apart."""
    return ProtocolError(_not_found(era), "Resource not found: `resources/list` has those there are", {"uri": uri})


def _no_prompt() -> ProtocolError:
    return ProtocolError(INVALID_PARAMS, "No prompt of that name here: `prompts/list` has those there are")


def _not_found(era: Era) -> int:
    return RESOURCE_NOT_FOUND if era == "legacy" else INVALID_PARAMS


def _refuse_resource(refusal: DownstreamRefusal, uri: str, era: Era) -> NoReturn:
    """In the words of the server; that there is no such resource has a code of each era, and names it as asked for."""
    if refusal.code not in _NOT_FOUND:
        raise ProtocolError(refusal.code, refusal.message, refusal.data) from None
    data = {**refusal.data, "uri": uri} if isinstance(refusal.data, dict) else {"uri": uri}
    raise ProtocolError(_not_found(era), refusal.message, data) from None


def _unavailable(error: GatewayError) -> NoReturn:
    data: Json = {"code": error.code}
    if isinstance(error, RateLimited):
        data["retryAfterS"] = error.retry_after_s
    raise ProtocolError(INTERNAL_ERROR, str(error), data) from None


def _outside(server_id: str, part: object) -> object:
    if isinstance(part, dict) and isinstance(part.get("uri"), str):
        return {**part, "uri": wrapped(server_id, part["uri"])}
    return part
