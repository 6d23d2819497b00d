"""The owner's operations among replicas: what one of them is asked, all of them say or do.

The replica that is asked sends a signed request to each of the others, at `PATH`; nobody else can use that path. A
gateway without replicas only does its own part.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

from pointsman.core import wire
from pointsman.core.model import Json
from pointsman.router.front.http.http_request import read_body
from pointsman.router.front.http.responses import HttpError, not_from_a_replica
from pointsman.router.owner.channel import Operation, OwnerError
from pointsman.router.owner.operations import (
    LISTS_S,
    SHORT_S,
    about,
    limited,
    operations_of,
    restart_server,
    status,
    stop_server,
)
from pointsman.router.owner.parts import Parts

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from pointsman.router.peers.peers import Peers
    from pointsman.router.peers.replica import Replica

PATH: Final = "/peer/owner"
ALIVE_S: Final = 5.0  # for a replica to say that it is there, which it does at once
STATUS_S: Final = LISTS_S + 5.0  # to say how it is
RESTART_S: Final = 60.0  # to start a server anew
MAX_REQUEST_BYTES: Final = 4096
MAX_ANSWER_BYTES: Final = 16 << 20
_COMMAND: Final = "pointsman cli"


async def status_everywhere(parts: Parts) -> Json:
    """How this replica is, and in `replicas` how each of them is, this one first. Without replicas, `status`."""
    if parts.peers is None:
        return await limited(status(parts), SHORT_S)
    own, others = await asyncio.gather(limited(status(parts), SHORT_S), _ask_all(parts.peers, "status", {}, STATUS_S))
    this = _named(parts.peers.own) | {"this": True, "status": own}
    return own | {"replicas": [this, *others]}


async def restart_everywhere(parts: Parts, server_id: str, asked_by: str = _COMMAND) -> Json:
    """Start a server anew at this replica, then at all others; `replicas` says what became of it there."""
    own = await restart_server(parts, server_id, asked_by)
    return own | await _at_others(parts, "restart_server", server_id, asked_by)


async def stop_everywhere(parts: Parts, server_id: str, asked_by: str = _COMMAND) -> Json:
    """Stop a server at all replicas until it is started again; `replicas` says what became of it at the others."""
    own = await stop_server(parts, server_id, asked_by)
    return own | await _at_others(parts, "stop_server", server_id, asked_by)


def channel_operations(parts: Parts) -> dict[str, Operation]:
    """All operations of the channel. Some concern all replicas, unless the command wants `here` only."""

    def chosen(
        here: Callable[[Parts, str], Awaitable[Json]], everywhere: Callable[[Parts, str], Awaitable[Json]]
    ) -> Operation:
        return lambda given: (here if given.get("here") is True else everywhere)(parts, _text(given, "server"))

    return operations_of(parts) | {
        "status": lambda given: status_everywhere(parts),
        "restart_server": chosen(restart_server, restart_everywhere),
        "stop_server": chosen(stop_server, stop_everywhere),
    }


def peer_endpoint(parts: Parts, peers: Peers) -> Callable[[Request], Awaitable[Response]]:
    """Answer at `PATH` what another replica asks for the owner, and nothing to anybody else."""
    from starlette.responses import Response  # imported with the other paths

    operations = _operations_for_peers(parts)

    async def endpoint(request: Request) -> Response:
        try:
            asked = wire.decode(await _signed_body(request, peers))
            operation = operations[asked["operation"]]
            answer: Json = {"result": await operation(asked["parameters"])}
        except OwnerError as error:
            answer = {"error": {"code": error.code, "message": str(error)}}
        except HttpError as error:
            headers = {name.decode(): value.decode() for name, value in error.headers}
            return Response(error.body(), error.status, headers, media_type="application/json")
        except (wire.InvalidJsonError, KeyError, TypeError):  # of another version
            return Response(status_code=404)
        return Response(wire.encode(answer), media_type="application/json")

    return endpoint


# ------------------------------------------------------------------ helpers


def _operations_for_peers(parts: Parts) -> Mapping[str, Operation]:
    """Each of them concerns the replica that is asked, and is not sent on."""

    def of_server(function: Callable[[Parts, str, str], Awaitable[Json]]) -> Operation:
        return lambda given: function(parts, _text(given, "server"), _text(given, "askedBy"))

    return {
        "about": lambda given: about(parts),
        "status": lambda given: status(parts),
        "restart_server": of_server(restart_server),
        "stop_server": of_server(stop_server),
    }


async def _signed_body(request: Request, peers: Peers) -> bytes:
    """Return the body of a request that another replica has signed. Raises HttpError 403, 413."""
    from pointsman.router.peers.signing import HEADER, ForgedError, target_of

    lines, scope = request.headers.raw, request.scope
    mark = b" ".join(value for name, value in lines if name == HEADER)
    try:
        digest = peers.verified_mark(mark, request.method, target_of(scope["path"], scope["query_string"]), lines)
    except ForgedError:
        raise not_from_a_replica() from None
    body = await read_body(dict(lines), request.receive, MAX_REQUEST_BYTES)
    if not peers.is_body(body, digest):
        raise not_from_a_replica()
    return body


async def _at_others(parts: Parts, operation: str, server_id: str, asked_by: str) -> Json:
    if parts.peers is None:
        return {}
    parameters = {"server": server_id, "askedBy": asked_by}
    return {"replicas": await _ask_all(parts.peers, operation, parameters, RESTART_S, key="server")}


async def _ask_all(
    peers: Peers, operation: str, parameters: Json, within_s: float, *, key: str = "status"
) -> list[Json]:
    """What each other replica answers, under `key`, or in `problem` why it does not."""
    body = wire.encode({"operation": operation, "parameters": parameters})
    return list(await asyncio.gather(*(_ask(peers, replica, body, within_s, key) for replica in peers.others)))


async def _ask(peers: Peers, replica: Replica, body: bytes, within_s: float, key: str) -> Json:
    from pointsman.router.peers.forwarding import LostError, RefusedError, UnreachableError

    limit_s = ALIVE_S
    try:
        await peers.post(replica, PATH, _ABOUT, within_s=limit_s, most_bytes=MAX_ANSWER_BYTES)
        limit_s = within_s
        code, text = await peers.post(replica, PATH, body, within_s=limit_s, most_bytes=MAX_ANSWER_BYTES)
        answer = wire.decode(text) if code == 200 else {"error": {"message": _OTHER_VERSION}}
        told = {key: answer["result"]} if "result" in answer else {"problem": answer["error"]["message"]}
    except RefusedError:
        told = {"problem": "It refuses our signature: compare the clocks and `state.request_keys` of both."}
    except UnreachableError:
        told = {"problem": "It cannot be reached. It has just ended, or the network between them does not work."}
    except TimeoutError:
        told = {"problem": f"It gave no answer within {limit_s:g} s. Its log may say why; if it hangs, end it."}
    except (LostError, wire.InvalidJsonError, KeyError, TypeError):
        told = {"problem": "It gave no whole answer. Its log may say why."}
    return _named(replica) | {"this": False, **told}


_ABOUT: Final = wire.encode({"operation": "about", "parameters": {}})
_OTHER_VERSION: Final = "It runs another version of Pointsman, which does not say how it is."


def _named(replica: Replica) -> Json:
    return {"replica": replica.id, "address": replica.address.removeprefix("tcp:")}


def _text(given: Json, name: str) -> str:
    value = given.get(name)
    if not isinstance(value, str):
        raise OwnerError("invalid_request", f"`{name}` must be a string.")
    return value
