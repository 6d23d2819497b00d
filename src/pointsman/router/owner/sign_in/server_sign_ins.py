"""The owner signs in to a server, and out: for `pointsman server login` and the page."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pointsman.catalog.holders import GATEWAY, Holder, holder_of, is_current
from pointsman.config.model import CurrentConfig, GatewayConfig
from pointsman.config.sections.server import Server
from pointsman.core.model import Caller, Json
from pointsman.router.audit.log import AuditLog
from pointsman.router.auth.server.store import IDENTITY
from pointsman.router.downstream.connection import ConnectionLostError
from pointsman.router.owner.channel import Operation, OwnerError
from pointsman.router.owner.operations import SHORT_S, limited, require_server
from pointsman.router.owner.parameters import read_object, read_text
from pointsman.router.owner.parts import Parts
from pointsman.router.owner.replicas import restart_everywhere
from pointsman.router.state.key_values import StateAwayError

if TYPE_CHECKING:
    from pointsman.router.downstream.oauth.service import ServerSignIns
    from pointsman.router.downstream.oauth.store import Credential, Pending

logger = logging.getLogger(__name__)

BEGIN_S = 60.0  # for several documents and a registration
LOGIN = "server/login"
LOGOUT = "server/logout"
_COMMAND = "pointsman cli"
_ID_CHARS = 12
_MAX_ANSWER = 16  # parameters of a redirect


async def begin_sign_in(
    parts: Parts, server_id: str, redirect_uri: str, caller: Caller | None = None, asked_by: str = _COMMAND
) -> Json:
    """Return the URL at which the owner signs in, and the state that its answer has. Raises OwnerError.

    `caller`: whose account it is to be; None: the gateway's own.
    """
    server = _with_oauth(parts, server_id, caller)
    holder = GATEWAY if caller is None else _holder_of(parts, server_id, server, caller)
    from pointsman.router.downstream.oauth.discovery import SignInError

    try:
        async with asyncio.timeout(BEGIN_S):
            url, state = await parts.server_sign_ins().begin(server_id, server, redirect_uri, holder)
    except SignInError as error:
        _record(parts.audit, LOGIN, server_id, holder, asked_by, refusal=error.audit_code)
        raise OwnerError("sign_in", f"Server `{server_id}`: {error.for_owner()}") from None
    except TimeoutError:
        _record(parts.audit, LOGIN, server_id, holder, asked_by, refusal="timeout")
        text = f"The authorization server of `{server_id}` did not answer within {BEGIN_S:g} s. Try again later."
        raise OwnerError("timeout", text) from None
    except StateAwayError as error:
        raise OwnerError("state", f"The sign-in cannot be kept: {error}") from None
    return {"url": url, "state": state, "server": server_id, "host": urlsplit(url).netloc}


async def finish_sign_in(parts: Parts, state: str, answer: Mapping[str, str], asked_by: str = _COMMAND) -> Json:
    """Use what the browser brought back, and start the server anew with it. Raises OwnerError."""
    pending = await _finish(parts, state, answer, asked_by)
    _record(parts.audit, LOGIN, pending.server, pending.holder, asked_by)
    if pending.holder != GATEWAY:
        parts.server_sign_ins().links.signed_in(pending.server, pending.holder)
        return {"id": pending.server, "state": "running", "reason": ""}
    return await restart_everywhere(parts, pending.server, asked_by)


async def _finish(parts: Parts, state: str, answer: Mapping[str, str], asked_by: str) -> Pending:
    from pointsman.router.downstream.oauth.discovery import SignInError

    try:
        return await parts.server_sign_ins().finish(state, answer, parts.current.config.servers.get)
    except SignInError as error:
        _record(parts.audit, LOGIN, error.server, error.holder, asked_by, refusal=error.audit_code)
        raise OwnerError("sign_in", f"Not signed in: {error.for_owner()}") from None
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
    _record(parts.audit, LOGOUT, server_id, GATEWAY, asked_by)
    if server is not None and server.enabled:
        await restart_everywhere(parts, server_id, asked_by)
    return {"server": server_id, "existed": True}


async def credentials(parts: Parts, server_id: str) -> Json:
    """The accounts of callers at a server. Raises OwnerError."""
    config = parts.current.config
    stored = await _credentials(parts, server_id)
    ended = await _ended_grants(parts, stored)
    found = [_described(config, one, ended) for one in stored]
    return {
        "server": server_id,
        "credentials": sorted(found, key=lambda one: (one["who"], one["project"] or "")),
        "unusedReason": _unused_reason(config.servers.get(server_id)),
    }


async def unused_credentials(parts: Parts) -> Json:
    """The servers at which accounts of callers are stored that no call uses. Raises OwnerError."""
    config = parts.current.config
    try:
        unused = await _unused(parts.server_sign_ins(), config)
        stored = [one for one in await parts.server_sign_ins().all_listed() if one.holder != GATEWAY]
    except StateAwayError as error:
        raise OwnerError("state", f"Accounts cannot be read: {error}") from None
    return {"unused": unused + _unused_of_grants(config, stored, await _ended_grants(parts, stored))}


async def end_accounts_of(
    person: str, sign_ins: Callable[[], ServerSignIns], current: CurrentConfig, audit: AuditLog
) -> None:
    """Forget the accounts of a grant that was revoked, and end each where it was made if that can be. Never raises."""
    try:
        stored = [one for one in await sign_ins().all_listed() if one.holder != GATEWAY]
        await asyncio.gather(
            *(
                _end_account(one, sign_ins(), current, audit)
                for one in stored
                if Holder.parse(one.holder).person == person
            )
        )
    except (StateAwayError, ConnectionLostError) as error:
        logger.warning("accounts of %s at servers are still stored, though it was revoked: %s", person, error)


async def _end_account(
    credential: Credential, sign_ins: ServerSignIns, current: CurrentConfig, audit: AuditLog
) -> None:
    server_id = credential.server
    await sign_ins.forget(server_id, current.config.servers.get(server_id), credential.holder)
    _record(audit, LOGOUT, server_id, credential.holder, "grant revoked")


async def warn_of_unused(sign_ins: Callable[[], ServerSignIns], before: GatewayConfig, config: GatewayConfig) -> None:
    """Log that a reload has moved the callers of a server to one account."""
    moved = [
        server_id
        for server_id, server in config.servers.items()
        if server.credentials == "shared"
        and (was := before.servers.get(server_id)) is not None
        and was.credentials == "per-caller"
    ]
    if not moved:
        return
    try:
        unused = {one["server"]: one for one in await _unused(sign_ins(), config)}
    except StateAwayError as error:
        logger.warning("whether accounts of callers are stored that are no longer used is not known: %s", error)
        unused = {}
    for server_id in moved:
        known = unused.get(server_id)
        stored = f"; {known['text']}" if known is not None else ""
        logger.warning(
            "server %s: `credentials: per-caller` was removed, so all callers now use one account there%s",
            server_id,
            stored,
        )


async def _unused(sign_ins: ServerSignIns, config: GatewayConfig) -> list[Json]:
    """Raises StateAwayError."""
    people: dict[str, set[str]] = {}
    for one in await sign_ins.all_listed():
        if one.holder != GATEWAY and _unused_reason(config.servers.get(one.server)):
            people.setdefault(one.server, set()).add(Holder.parse(one.holder).person)
    found = []
    for server_id, names in sorted(people.items()):
        people_text = "1 person" if len(names) == 1 else f"{len(names)} people"
        step = f"`pointsman server credentials {server_id} --revoke-all` removes them"
        text = f"credentials of {people_text} are stored and unused: {step}"
        server = config.servers.get(server_id)
        found.append(
            {
                "server": server_id,
                "people": len(names),
                "exists": server is not None,
                "missing": _missing(server),
                "text": text,
            }
        )
    return found


def _missing(server: Server | None) -> list[str]:
    """The keys that the entry would need, so that calls use accounts of callers."""
    if server is None:
        return []
    keys = {"credentials: per-caller": server.credentials == "per-caller", "oauth": server.oauth is not None}
    return [key for key, present in keys.items() if not present]


def _unused_of_grants(config: GatewayConfig, stored: Sequence[Credential], ended: Collection[str]) -> list[Json]:
    """Those of grants that have ended, at servers whose other accounts are in use."""
    people: dict[str, set[str]] = {}
    for one in stored:
        person = Holder.parse(one.holder).person
        if person in ended and not _unused_reason(config.servers.get(one.server)):
            people.setdefault(one.server, set()).add(person)
    found = []
    for server_id, names in sorted(people.items()):
        count = "a grant that has" if len(names) == 1 else f"{len(names)} grants that have"
        step = f"`pointsman server credentials {server_id}` lists them, and `--revoke ID` removes one"
        text = f"credentials of {count} ended are stored and unused: {step}"
        found.append({"server": server_id, "people": len(names), "exists": True, "ended": True, "text": text})
    return found


async def _ended_grants(parts: Parts, stored: Sequence[Credential]) -> set[str]:
    """The persons among the holders that are grants, and no longer are accepted. Raises OwnerError."""
    people = {Holder.parse(one.holder).person for one in stored}
    grants = {person for person in people if person.startswith(IDENTITY)}
    if not grants or parts.authorization is None:
        return grants
    try:
        return grants - {grant.identity for grant in await parts.authorization.grants()}
    except StateAwayError as error:
        raise OwnerError("state", f"Grants cannot be read: {error}") from None


def _unused_reason(server: Server | None) -> str:
    """Why no call uses an account that a caller has at a server; empty: calls do."""
    if server is None:
        return "the server was removed"
    if server.credentials != "per-caller":
        return "the server has no `credentials: per-caller`"
    return "" if server.oauth is not None else "the server has no `oauth`"


async def end_credential(parts: Parts, server_id: str, credential_id: str, asked_by: str = _COMMAND) -> Json:
    """Forget a caller's account at a server, at all gateways. Raises OwnerError."""
    config = parts.current.config
    known = {_id_of(one.holder): one for one in await _credentials(parts, server_id)}
    credential = known.get(credential_id)
    if credential is None:
        listing = f"List them with `pointsman server credentials {server_id}`."
        raise OwnerError("unknown_credential", f"Server `{server_id}` has no account `{credential_id[:64]}`. {listing}")
    try:
        await parts.server_sign_ins().forget(server_id, config.servers.get(server_id), credential.holder)
    except StateAwayError as error:
        raise OwnerError("state", f"The account STILL WORKS: {error}") from None
    _record(parts.audit, LOGOUT, server_id, credential.holder, asked_by)
    return _described(config, credential)


async def _credentials(parts: Parts, server_id: str) -> list[Credential]:
    """Raises OwnerError."""
    try:
        found = [one for one in await parts.server_sign_ins().listed(server_id) if one.holder != GATEWAY]
    except StateAwayError as error:
        raise OwnerError("state", f"Accounts cannot be read: {error}") from None
    if not found:
        require_server(parts, server_id)  # those of a server that was removed can still be ended
    return found


def _described(config: GatewayConfig, credential: Credential, ended: Collection[str] = ()) -> Json:
    holder = Holder.parse(credential.holder)
    problem = _unused_reason(config.servers.get(credential.server))
    if not problem and not is_current(config, holder):
        problem = "the token or issuer is another one now"
    if not problem and holder.person in ended:
        problem = "the grant was revoked or has ended"
    return {
        "id": _id_of(credential.holder),
        "who": holder.person,
        "project": holder.project_id,
        "signedIn": f"{datetime.fromtimestamp(credential.signed_in, UTC):%Y-%m-%dT%H:%M:%SZ}",
        "scope": credential.scope,
        "works": not problem and bool(credential.access),
        "problem": problem or credential.problem,
    }


def _id_of(holder: str) -> str:
    return sha256(holder.encode()).hexdigest()[:_ID_CHARS]


def _holder_of(parts: Parts, server_id: str, server: Server, caller: Caller) -> str:
    """Raises OwnerError."""
    if server.credentials != "per-caller":
        raise OwnerError(
            "shared",
            f"All callers use one account at `{server_id}`: it has no `credentials: per-caller`. Leave `--for` out to "
            "sign in for all of them.",
        )
    if caller.token_id not in parts.current.config.tokens:
        raise OwnerError("unknown_token", f"No token `{caller.token_id[:64]}`. List them with `pointsman token list`.")
    if not parts.catalog.rights.may_use_server(caller, server_id):
        project = f" in project `{caller.project_id}`" if caller.project_id else " without a project"
        raise OwnerError("not_allowed", f"Token `{caller.token_id}` may not use `{server_id}`{project}.")
    return holder_of(parts.current.config, caller)


def _record(
    audit: AuditLog, method: str, server_id: str | None, key: str, asked_by: str, *, refusal: str | None = None
) -> None:
    """Write a row. `refusal`: why nothing was done."""
    holder = Holder.parse(key) if key != GATEWAY else None
    audit.record_change(
        method,
        f"servers.{server_id}" if refusal is None else refusal,
        client=asked_by,
        server_id=server_id,
        project_id=holder.project_id if holder is not None else None,
        token_id=holder.person if holder is not None else None,
        ending="ok" if refusal is None else "denied",
        source="" if refusal is None else method,
    )


def sign_in_operations(parts: Parts) -> dict[str, Operation]:
    return {
        "begin_sign_in": lambda given: begin_sign_in(
            parts, read_text(given, "server"), _loopback(read_text(given, "redirectUri")), _caller_in(given)
        ),
        "credentials": lambda given: credentials(parts, read_text(given, "server")),
        "unused_credentials": lambda _: unused_credentials(parts),
        "end_credential": lambda given: limited(
            end_credential(parts, read_text(given, "server"), read_text(given, "credential")), BEGIN_S + SHORT_S
        ),
        "finish_sign_in": lambda given: finish_sign_in(parts, read_text(given, "state"), _texts(given)),
        "end_sign_in": lambda given: limited(end_sign_in(parts, read_text(given, "server")), BEGIN_S + SHORT_S),
        "sign_in_port": lambda given: _port(parts, read_text(given, "server"), _caller_in(given)),
    }


async def _port(parts: Parts, server_id: str, caller: Caller | None) -> Json:
    """The port to which the browser returns, if the configuration names one; else that of the client that is registered
    for this server, if there is one, so that it can be used again."""
    server = _with_oauth(parts, server_id, caller)
    assert server.oauth is not None
    if server.oauth.callback_port is not None:
        return {"port": server.oauth.callback_port, "required": True}
    holder = GATEWAY if caller is None else _holder_of(parts, server_id, server, caller)
    return {"port": await parts.server_sign_ins().registered_port(server_id, server, holder), "required": False}


def _with_oauth(parts: Parts, server_id: str, caller: Caller | None = None) -> Server:
    server = require_server(parts, server_id)
    if server.oauth is None:
        raise OwnerError(
            "no_oauth", f"Server `{server_id}` needs no sign-in: {_without_oauth(server_id, server, caller)}"
        )
    if not server.enabled:
        raise OwnerError(
            "disabled", f"Server `{server_id}` is disabled. Enable it with `pointsman server enable {server_id}`."
        )
    return server


def _without_oauth(server_id: str, server: Server, caller: Caller | None) -> str:
    if server.url is None:
        return "it is not a server with a `url`."
    if server.credentials == "per-caller":
        whose = caller.token_id[:64] if caller is not None else "TOKEN"
        step = f"Set those of `{whose}` in `servers.{server_id}.caller_headers.{whose}`."
        return f"its callers have headers of their own. {step}"
    if server.headers:
        return "it gets the `headers` of its entry. If it has OAuth, too, add `oauth: auto` in their place."
    return "its entry has no `oauth`. If it asks for OAuth, add `oauth: auto`."


def _caller_in(given: Json) -> Caller | None:
    if given.get("token") is None:
        return None
    project = read_text(given, "project") if given.get("project") is not None else None
    return Caller(read_text(given, "token"), project)


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
