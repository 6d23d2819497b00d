"""The owner's operations among replicas: what one of them is asked, all of them say or do.

The replica that is asked sends a signed request to each of the others, at `PATH`; nobody else can use that path. A
gateway without replicas only does its own part.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
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
    servers,
    status,
    stop_server,
)
from pointsman.router.owner.parts import Parts
from pointsman.router.owner.replica_names import at_start, replica_name
from pointsman.router.serving import state_folder
from pointsman.router.serving.workers_file import problems, read_note, runs

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from pointsman.router.peers.peers import Peers
    from pointsman.router.peers.replica import Replica

PATH: Final = "/peer/owner"
ALIVE_S: Final = 5.0  # for a replica to say that it is there, which it does at once
STATUS_S: Final = LISTS_S + 5.0  # to say how it is
RESTART_S: Final = 60.0  # to start a server anew
MAX_REQUEST_BYTES: Final = 64 << 10  # with a token, which an issuer may have made long
MAX_ANSWER_BYTES: Final = 16 << 20
_COMMAND: Final = "pointsman cli"


async def status_everywhere(parts: Parts) -> Json:
    """How this replica is, and in `replicas` how each of them is, this one first. Without replicas, `status`."""
    if parts.peers is None:
        return await limited(status(parts), SHORT_S)
    own, others = await asyncio.gather(
        limited(status(parts), SHORT_S), _ask_all(parts, parts.peers, "status", {}, STATUS_S)
    )
    _add_runners(parts, own["servers"]["list"])
    this = _named(parts, parts.peers.own) | {"this": True, "status": own}
    return own | {"replicas": [this, *others]} | _workers(parts)


async def servers_everywhere(parts: Parts) -> Json:
    """All servers as this replica sees them, with `replicas` where others see one in another state.

    `silent` names the replicas that did not answer, `runsAt` the one that runs a server for all.
    """
    if parts.peers is None:
        return await limited(servers(parts), SHORT_S)
    own, others = await asyncio.gather(
        limited(servers(parts), SHORT_S), _ask_all(parts, parts.peers, "servers", {}, STATUS_S, key="seen")
    )
    seen = [(one, {each["id"]: each for each in one["seen"]["servers"]}) for one in others if "seen" in one]
    for one in own["servers"]:
        differing = [_seen_at(replica, its[one["id"]]) for replica, its in seen if _differs(one, its.get(one["id"]))]
        if differing:
            one["replicas"] = differing
    _add_runners(parts, own["servers"])
    silent = [one for one in others if "seen" not in one]
    return own | {"silent": silent} | ({"worker": parts.worker} if parts.worker else {})


async def restart_everywhere(parts: Parts, server_id: str, asked_by: str = _COMMAND) -> Json:
    """Start a server anew at this replica, then at all others; `replicas` says what became of it there."""
    await _require_answer(parts, server_id, "restarted", f"Then another one starts `{server_id}` anew.")
    own = await restart_server(parts, server_id, asked_by)
    return own | await _at_others(parts, "restart_server", server_id, asked_by)


async def restart_here(parts: Parts, server_id: str) -> Json:
    """Start a server anew at this replica only, or at the one that runs it for all, which `runsAt` then names."""
    runner = _elsewhere(parts, server_id)
    if parts.peers is None or runner is None:
        return await restart_server(parts, server_id, _COMMAND)
    asked = wire.encode({"operation": "restart_server", "parameters": {"server": server_id, "askedBy": _COMMAND}})
    told = await _ask(parts, parts.peers, runner, asked, RESTART_S, "server")
    if "server" not in told:
        name = at_start(replica_name(told))
        raise OwnerError("unavailable", f"{name} runs `{server_id}` for all. {told['problem']}")
    restarted: Json = told["server"]
    return restarted | {"runsAt": _named(parts, runner)}


async def stop_here(parts: Parts, server_id: str) -> Json:
    """Stop a server at this replica only. Raises OwnerError if one replica runs it for all: another would start it."""
    if _is_placed(parts, server_id):
        kind = "worker" if parts.worker else "replica"
        raise OwnerError(
            "placed", f"One {kind} runs `{server_id}` for all of them, so `--here` cannot stop it. Leave `--here` out."
        )
    return await stop_server(parts, server_id, _COMMAND)


async def server_place(parts: Parts, server_id: str) -> Json:
    """Whether one replica runs this server for all."""
    return {"placed": _is_placed(parts, server_id)}


async def stop_everywhere(parts: Parts, server_id: str, asked_by: str = _COMMAND) -> Json:
    """Stop a server at all replicas until it is started again; `replicas` says what became of it at the others."""
    await _require_answer(parts, server_id, "stopped", f"Then `pointsman server stop {server_id}` works again.")
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
        "servers": lambda given: servers_everywhere(parts),
        "restart_server": chosen(restart_here, restart_everywhere),
        "stop_server": chosen(stop_here, stop_everywhere),
        "server_place": lambda given: server_place(parts, _text(given, "server")),
    }


def peer_endpoint(
    parts: Parts, peers: Peers, more: Mapping[str, Operation]
) -> Callable[[Request], Awaitable[Response]]:
    """Answer at `PATH` what another replica asks for the owner, or of the operations `more`, and refuse all others."""
    from starlette.responses import Response  # imported with the other paths

    operations = {**_operations_for_peers(parts), **more}

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
        "servers": lambda given: servers(parts),
        "restart_server": of_server(restart_server),
        "stop_server": of_server(stop_server),
    }


def _differs(one: Json, other: Json | None) -> bool:
    """Whether another replica sees a server in another state; None: it has not read the entry yet."""
    return other is not None and any(one[key] != other[key] for key in ("enabled", "state", "tools"))


def _seen_at(replica: Json, its: Json) -> Json:
    shown = {key: its[key] for key in ("enabled", "state", "reason", "tools")}
    return {key: value for key, value in replica.items() if key not in ("seen", "this")} | shown


def _is_placed(parts: Parts, server_id: str) -> bool:
    server = parts.current.config.servers.get(server_id)
    return server is not None and parts.placement is not None and parts.placement.applies(server)


def _elsewhere(parts: Parts, server_id: str) -> Replica | None:
    """The other replica that runs this server for all; None: each runs its own, this one does, or none does."""
    if parts.peers is None or parts.placement is None or not _is_placed(parts, server_id):
        return None
    folder = parts.placement.runner(server_id)
    here = (one for one in parts.peers.others if one.address.startswith("unix:"))
    return next((one for one in here if Path(one.address).parent.name == folder), None)


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
    return {"replicas": await _ask_all(parts, parts.peers, operation, parameters, RESTART_S, key="server")}


async def _require_answer(parts: Parts, server_id: str, done: str, then: str) -> None:
    """Raise OwnerError if another replica runs this server for all, and does not answer: nothing can be `done`."""
    runner = _elsewhere(parts, server_id)
    if parts.peers is None or runner is None:
        return
    told = await _ask(parts, parts.peers, runner, _ABOUT, ALIVE_S, "about")
    if "about" not in told:
        name = at_start(replica_name(told))
        text = f"{name} runs `{server_id}` for all and does not answer, so it was not {done}. {told['problem']} {then}"
        raise OwnerError("unavailable", text)


async def _ask_all(
    parts: Parts, peers: Peers, operation: str, parameters: Json, within_s: float, *, key: str = "status"
) -> list[Json]:
    """What each other replica answers, under `key`, or in `problem` why it does not."""
    body = wire.encode({"operation": operation, "parameters": parameters})
    return list(await asyncio.gather(*(_ask(parts, peers, replica, body, within_s, key) for replica in peers.others)))


async def _ask(parts: Parts, peers: Peers, replica: Replica, body: bytes, within_s: float, key: str) -> Json:
    from pointsman.router.peers.forwarding import LostError, RefusedError, UnreachableError

    limit_s = ALIVE_S
    try:
        await peers.post(replica, PATH, _ABOUT, within_s=limit_s, most_bytes=MAX_ANSWER_BYTES)
        limit_s = within_s
        code, text = await peers.post(replica, PATH, body, within_s=limit_s, most_bytes=MAX_ANSWER_BYTES)
        answer = wire.decode(text) if code == 200 else {"error": {"message": _OTHER_VERSION}}
        told = {key: answer["result"]} if "result" in answer else {"problem": answer["error"]["message"]}
    except RefusedError:
        told = {"problem": f"It refuses our signature: {_OTHER_KEYS if parts.worker else _COMPARE_KEYS}."}
    except UnreachableError:
        told = {"problem": "It cannot be reached. It has just ended, or the network between them does not work."}
    except TimeoutError:
        told = {"problem": f"It gave no answer within {limit_s:g} s. {_hang_step(parts)}"}
    except (LostError, wire.InvalidJsonError, KeyError, TypeError):
        told = {"problem": "It gave no whole answer. Its log may say why."}
    return _named(parts, replica) | {"this": False, **told}


_ABOUT: Final = wire.encode({"operation": "about", "parameters": {}})
_COMPARE_KEYS: Final = "compare the clocks and `state.request_keys` of both"
_OTHER_KEYS: Final = "it was started with other keys, so restart the gateway"
_OTHER_VERSION: Final = "It runs another version of Pointsman, which does not say how it is."


def _hang_step(parts: Parts) -> str:
    note = read_note(parts.state_dir) if parts.worker else None
    if note is None:
        return "Its log may say why; if it hangs, end it."
    return f"If it hangs, its parent replaces it within {note.silence_s:g} s."


def _workers(parts: Parts) -> Json:
    """How the parent sees its workers, also those that do not run; nothing without workers."""
    note = read_note(parts.state_dir) if parts.worker else None
    if note is None:
        return {}
    wrong = {worker.number: text for worker, text in problems(note)}
    return {
        "parentUptimeS": round(max(time.time() - note.started, 0.0)),
        "workers": [
            {
                "worker": one.number,
                "process": one.process or None,
                "state": "not running" if not runs(one) else "ready" if one.ready else "starting",
                "problem": wrong.get(one.number, ""),
            }
            for one in note.workers
        ],
    }


def _add_runners(parts: Parts, described: list[Json]) -> None:
    """Say of each server that one replica runs for all, which one: the name of its folder."""
    for one in described:
        if parts.placement is not None and _is_placed(parts, one["id"]):
            one["runsAt"] = parts.placement.runner(one["id"])


def _named(parts: Parts, replica: Replica) -> Json:
    """What is known of a replica without asking it."""
    named: Json = {"replica": replica.id, "address": replica.address.removeprefix("tcp:")}
    if replica.address.startswith("unix:"):
        folder = Path(replica.address.removeprefix("unix:")).parent
        named |= {"folder": folder.name, "process": state_folder.holder(folder)}
        if parts.worker:
            named["worker"] = int(folder.name)
    return named


def _text(given: Json, name: str) -> str:
    value = given.get(name)
    if not isinstance(value, str):
        raise OwnerError("invalid_request", f"`{name}` must be a string.")
    return value
