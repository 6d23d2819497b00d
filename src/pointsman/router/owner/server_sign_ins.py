"""The owner signs in to a server, and out: for `pointsman server login` and the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pointsman.config.server_model import Server
from pointsman.core.model import Json
from pointsman.router.owner.channel import Operation, OwnerError
from pointsman.router.owner.operations import SHORT_S, limited, require_server
from pointsman.router.owner.parameters import read_object, read_text
from pointsman.router.owner.parts import Parts
from pointsman.router.owner.replicas import restart_everywhere
from pointsman.router.state.key_values import StateAwayError

if TYPE_CHECKING:
    from pointsman.router.downstream.oauth.store import Pending

BEGIN_S = 60.0  # for several documents and a registration
_COMMAND = "pointsman cli"
_MAX_ANSWER = 16  # parameters of a redirect


async def begin_sign_in(parts: Parts, server_id: str, redirect_uri: str) -> Json:
    """Return the URL at which the owner signs in, and the state that its answer has. Raises OwnerError."""
    server = _with_oauth(parts, server_id)
    from pointsman.router.downstream.oauth.discovery import SignInError

    try:
        url, state = await parts.server_sign_ins().begin(server_id, server, redirect_uri)
    except SignInError as error:
        raise OwnerError("sign_in", f"Server `{server_id}`: {error}") from None
    except StateAwayError as error:
        raise OwnerError("state", f"The sign-in cannot be kept: {error}") from None
    return {"url": url, "state": state, "server": server_id, "host": urlsplit(url).netloc}


async def finish_sign_in(parts: Parts, state: str, answer: Mapping[str, str], asked_by: str = _COMMAND) -> Json:
    """Use what the browser brought back, and start the server anew with it. Raises OwnerError."""
    pending = await _finish(parts, state, answer)
    parts.audit.record_change("server/login", f"servers.{pending.server}", client=asked_by, server_id=pending.server)
    return await restart_everywhere(parts, pending.server, asked_by)


async def _finish(parts: Parts, state: str, answer: Mapping[str, str]) -> Pending:
    from pointsman.router.downstream.oauth.discovery import SignInError

    try:
        return await parts.server_sign_ins().finish(state, answer, parts.current.config.servers.get)
    except SignInError as error:
        raise OwnerError("sign_in", f"Not signed in: {error}") from None
    except StateAwayError as error:
        raise OwnerError("state", f"Not signed in: {error}") from None


async def end_sign_in(parts: Parts, server_id: str, asked_by: str = _COMMAND) -> Json:
    """Forget the sign-in to a server, and connect without it. Raises OwnerError."""
    server = parts.current.config.servers.get(server_id)
    try:
        existed = await parts.server_sign_ins().forget(server_id, server)
    except StateAwayError as error:
        raise OwnerError("state", f"Not signed out: {error}") from None
    if not existed:
        require_server(parts, server_id)
        return {"server": server_id, "existed": False}
    parts.audit.record_change("server/logout", f"servers.{server_id}", client=asked_by, server_id=server_id)
    if server is not None and server.enabled:
        await restart_everywhere(parts, server_id, asked_by)
    return {"server": server_id, "existed": True}


def sign_in_operations(parts: Parts) -> dict[str, Operation]:
    return {
        "begin_sign_in": lambda given: limited(
            begin_sign_in(parts, read_text(given, "server"), _loopback(read_text(given, "redirectUri"))), BEGIN_S
        ),
        "finish_sign_in": lambda given: finish_sign_in(parts, read_text(given, "state"), _texts(given)),
        "end_sign_in": lambda given: limited(end_sign_in(parts, read_text(given, "server")), BEGIN_S + SHORT_S),
        "sign_in_port": lambda given: _port(parts, read_text(given, "server")),
    }


async def _port(parts: Parts, server_id: str) -> Json:
    """The port to which the browser returns, if the configuration names one."""
    server = _with_oauth(parts, server_id)
    assert server.oauth is not None
    return {"port": server.oauth.callback_port}


def _with_oauth(parts: Parts, server_id: str) -> Server:
    server = require_server(parts, server_id)
    if server.oauth is None:
        why = "it is not a server with a `url`" if server.url is None else "its entry has no `oauth`"
        step = "" if server.url is None else " Add `oauth: auto` to it."
        raise OwnerError("no_oauth", f"Server `{server_id}` needs no sign-in: {why}.{step}")
    if not server.enabled:
        raise OwnerError(
            "disabled", f"Server `{server_id}` is disabled. Enable it with `pointsman server enable {server_id}`."
        )
    return server


def _loopback(redirect_uri: str) -> str:
    """Raises OwnerError: a code must not go anywhere but to the command that waits for it."""
    parts = urlsplit(redirect_uri)
    if parts.scheme != "http" or parts.hostname != "127.0.0.1" or parts.path != "/callback" or parts.query:
        raise OwnerError("invalid_request", "`redirectUri` must be http://127.0.0.1:PORT/callback.")
    return redirect_uri


def _texts(given: Json) -> dict[str, str]:
    answer = read_object(given, "answer")
    if len(answer) > _MAX_ANSWER or not all(isinstance(value, str) for value in answer.values()):
        raise OwnerError("invalid_request", "`answer` must be the parameters of a redirect.")
    return answer
