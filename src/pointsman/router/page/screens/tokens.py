"""Tokens: what each may use and when it was used last; create one, whose secret is shown once, change or revoke one."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from starlette.responses import Response

from pointsman.config.edits import Writer, add_token, remove_token, set_token
from pointsman.config.errors import closest
from pointsman.config.expiry import has_expired, read_expiry, show_expiry
from pointsman.config.files import Rewritten
from pointsman.config.model import ANY, UNASSIGNED, GatewayConfig, Token
from pointsman.config.secrets import digest, new_secret
from pointsman.config.sections.value_types import SCOPES, Scope
from pointsman.core.model import Json
from pointsman.router.audit.kept import READ_ERRORS
from pointsman.router.audit.query import LastUse, last_uses
from pointsman.router.auth.metadata import can_sign_in
from pointsman.router.clients.dialects import DIALECTS
from pointsman.router.clients.entry import DEFAULT_NAME, Connection, entry_for, own_command
from pointsman.router.clients.setup import snippet
from pointsman.router.owner.channel import OwnerError
from pointsman.router.owner.description import unseen_servers, unseen_text
from pointsman.router.owner.sign_in.grants import grants, revoke_grant
from pointsman.router.page.registry import Screen
from pointsman.router.page.screens.projects import NO_PROJECT, read_patterns
from pointsman.router.page.view import CLIENT, View

PATH = "/page/tokens"
ROWS = 50
SCOPE_CHOICES = {
    "read write destructive": "All tools",
    "read write": "No destructive tools",
    "read": "Only tools that read",
}
DRAFT_S = 600.0
MAX_DRAFTS = 32


@dataclass(slots=True)
class Drafts:
    """Secrets of tokens that somebody is about to create, by the nonce of the form. Never written anywhere.

    The nonce makes a form work once: a reload that sends it again finds no secret, and creates no second token.
    """

    _secrets: dict[str, tuple[str, float]] = field(default_factory=dict)  # with the end of each

    def keep(self, secret: str, nonce: str = "") -> str:
        now = time.monotonic()
        self._secrets = {key: kept for key, kept in self._secrets.items() if kept[1] > now}
        while len(self._secrets) >= MAX_DRAFTS:
            del self._secrets[next(iter(self._secrets))]
        nonce = nonce or secrets.token_urlsafe(16)
        self._secrets[nonce] = secret, now + DRAFT_S
        return nonce

    def take(self, nonce: str) -> str | None:
        secret, until = self._secrets.pop(nonce, ("", 0.0))
        return secret if until > time.monotonic() else None


_drafts = Drafts()


async def show(view: View) -> Response:
    return await _list(view)


async def _list(view: View, error: str = "") -> Response:
    """With an error, what was typed stays in the form."""
    config = view.parts.current.config
    page, wanted = view.number("page", 1), view.query("q").lower()
    names = [name for name in config.tokens if wanted in name.lower()]
    shown = names[(page - 1) * ROWS : page * ROWS]
    uses = await _uses(view, shown)
    return view.render(
        "tokens.html",
        400 if error else 200,
        error=error,
        chosen={name: view.fields(name) if error else [ANY] for name in ("projects", "servers")},
        tokens=[_described(config, name, uses) for name in shown],
        total=len(names),
        page=page,
        more=len(names) > page * ROWS,
        dialects=DIALECTS.values(),
        grants=await _grants(view),
        signs_in=can_sign_in(config),
        grants_off=view.parts.authorization.off if view.parts.authorization is not None else "",
        **_choices(config),
    )


async def show_one(view: View) -> Response:
    name, config = _token_of(view), view.parts.current.config
    uses = await _uses(view, [name])
    return view.render("token.html", token=_described(config, name, uses), **_choices(config))


async def create(view: View) -> Response:
    """Ask first, with the diff; then answer with the secret itself: no address and no cookie ever has it."""
    name, client = view.field("name"), view.field("client")
    secret = _drafts.take(view.field("nonce")) if view.confirmed else new_secret()
    if secret is None:
        raise OwnerError("sent_already", _sent_already(view, name))
    if not view.confirmed:
        view.form["nonce"] = [_drafts.keep(secret)]
    asked: Response | None = None
    created = False
    try:
        asked = await _create(view, name, client, secret)
        created = asked is None
    except OwnerError as error:
        return await _list(view, str(error))
    finally:
        if view.confirmed and not created:  # nothing was shown, so the same form may be sent again
            _drafts.keep(secret, view.field("nonce"))
    return asked or view.render(
        "token_created.html", name=name, secret=secret, client=_client(view, client, secret), url=view.client_url
    )


async def _create(view: View, name: str, client: str, secret: str) -> Response | None:
    if not name:
        raise OwnerError("no_name", "A token needs a name of letters, digits, `-` and `_`, such as `laptop`.")
    if client and client not in DIALECTS:
        raise OwnerError("unknown_client", f"No client `{client[:64]}` is known.")
    projects, servers, expires = _rights(view)
    scopes, tools = _limits(view)
    path = view.parts.config_path
    limits = {"scopes": () if scopes == list(SCOPES) else scopes, "tools": tools or ()}

    def edit(environ: Mapping[str, str], write: Writer) -> Rewritten:
        return add_token(path, name, digest(secret), projects, servers, expires, environ, write, **limits)

    title, text = f"Create the token {name[:64]}?", _lacks(view, name, projects, servers, scopes)
    return await view.change(edit, "token", title=title, to=PATH, text=text, button="Create")


async def change(view: View) -> Response:
    name, path = _token_of(view), view.parts.config_path
    token = view.parts.current.config.tokens[name]
    projects, servers, expires = _rights(view, show_expiry(token.expires))
    scopes, tools = _limits(view, token)
    given: dict[str, Any] = {"projects": projects, "servers": servers, "scopes": scopes, "tools": tools or []}
    values = {key: value for key, value in given.items() if value != list(getattr(token, key) or ())}
    if "tools" in values:
        values["tools"] = tools
    if expires != show_expiry(token.expires):
        values["expires"] = expires
    if not values:
        raise OwnerError("unchanged", "That is what the configuration has already.")

    def edit(environ: Mapping[str, str], write: Writer) -> Rewritten:
        return set_token(path, name, values, environ, write)

    to = f"{PATH}/{name}"
    text = _lacks(view, name, projects, servers, scopes)
    asked = await view.change(edit, "token", title=f"Change {name}?", to=to, text=text)
    return asked or view.done(f"The rights of `{name}` have changed. Its secret stays the same.", to)


async def revoke(view: View) -> Response:
    name, path = _token_of(view), view.parts.config_path

    def edit(environ: Mapping[str, str], write: Writer) -> Rewritten:
        return remove_token(path, name, environ, write)

    text = "Clients that use it are refused from then on. This cannot be undone: another token has another secret."
    try:
        asked = await view.change(
            edit, "token", title=f"Revoke {name}?", to=PATH, text=text, danger=True, button="Revoke"
        )
    except OwnerError as error:
        if name in view.parts.current.config.tokens:
            raise OwnerError(error.code, f"Token `{name}` STILL WORKS. {error}") from error
        return view.done(f"`{name}` is revoked and refused from now on. Apart from that: {error}", PATH, "warn")
    return asked or view.done(f"`{name}` is revoked. Clients that use it are refused.", PATH)


async def revoke_grant_of(view: View) -> Response:
    """End the access of a client that has signed in."""
    grant_id = view.path("id")
    found = next((one for one in await _grants(view) or [] if one["id"] == grant_id), None)
    if found is None:
        raise _unknown("grant", grant_id, [])
    name = found["client"] or "a client without a name"
    if not view.confirmed:
        text = "It is refused from then on. It can ask again, and you are asked again."
        return view.confirm(f"Revoke the access of {name}?", text, button="Revoke", danger=True, back=PATH)
    await revoke_grant(view.parts, grant_id, CLIENT)
    return view.done(f"The access of {name} is revoked.", PATH)


# ------------------------------------------------------------------ helpers


async def _grants(view: View) -> list[Json] | None:
    """Clients that have signed in; None: they cannot."""
    if view.parts.authorization is None:
        return None
    found: list[Json] = (await grants(view.parts))["grants"]
    return found


def _rights(view: View, kept: str | None = None) -> tuple[list[str], list[str], str | None]:
    """Projects, servers and expiry of the form, checked. An expiry equal to `kept` may be in the past."""
    config = view.parts.current.config
    projects = [UNASSIGNED if one == NO_PROJECT else one for one in view.fields("projects")]
    servers = view.fields("servers")
    for kind, given, known in (
        ("project", projects, (*config.projects, UNASSIGNED)),
        ("server", servers, config.servers),
    ):
        for one in given:
            if one != ANY and one not in known:
                raise _unknown(kind, one, list(known))
    expires = view.field("expires") or None
    if expires is not None and expires != kept:
        try:
            expires = read_expiry(expires, datetime.now(UTC))
        except ValueError as error:
            raise OwnerError("invalid_expiry", f"The expiry: {error}") from None
        view.form["expires"] = [expires]  # a duration counts from now, not from the moment of the confirmation
    return [ANY] if ANY in projects else projects, [ANY] if ANY in servers else servers, expires


def _limits(view: View, token: Token | None = None) -> tuple[list[Scope], list[str] | None]:
    """Scopes and patterns of the form; where it has no such field, those of the token. None stands for all tools."""
    kept = token.scopes if token is not None else SCOPES
    named = view.field("scopes", " ".join(kept)).split()
    scopes: list[Scope] = [scope for scope in SCOPES if scope in named]
    if not scopes or len(scopes) < len(named):
        raise OwnerError("invalid", "Choose what the tools of the token may do.")
    if "tools" not in view.form:
        return scopes, list(token.tools) if token is not None and token.tools else None
    return scopes, read_patterns(view)


def _lacks(view: View, name: str, projects: Sequence[str], servers: Sequence[str], scopes: Sequence[Scope]) -> str:
    if not projects:
        return "It may act for no project, so every call is denied until it gets one."
    if not servers:
        return "It may use no server, so it finds no tools until it gets one."
    token = Token(sha256="0" * 64, projects=tuple(projects), servers=tuple(servers), scopes=tuple(scopes))
    unseen = unseen_servers(view.parts.current.config.model_copy(update={"tokens": {name: token}}), name)
    return unseen_text(name[:64], unseen) if unseen else ""


def _sent_already(view: View, name: str) -> str:
    if name in view.parts.current.config.tokens:
        return (
            f"This form was sent before: the token `{name[:64]}` exists, and its secret was shown then. "
            "If it is lost, revoke the token and create another one."
        )
    return "This form is too old, or was sent before. If the list does not have the token, fill the form in again."


def _client(view: View, name: str, secret: str) -> Json | None:
    """The entry of a client with the token in it."""
    if not name:
        return None
    dialect = DIALECTS[name]
    if dialect.http:
        connection = Connection(view.client_url, secret)
    else:
        connection = Connection("", secret, command=(*own_command(), "stdio"))
    return {
        "title": dialect.title,
        "file": next((file for file in dialect.user_files if not file.startswith("$")), dialect.user_files[0]),
        "text": snippet(dialect, DEFAULT_NAME, entry_for(dialect, connection)),
        "after": dialect.after,
    }


async def _uses(view: View, names: Sequence[str]) -> Mapping[str, LastUse] | None:
    """None: the audit cannot be read; the overview then says so."""
    try:
        return await asyncio.to_thread(last_uses, view.parts.audit_rows, names)
    except READ_ERRORS:
        return None


def _described(config: GatewayConfig, name: str, uses: Mapping[str, LastUse] | None) -> Json:
    token, use = config.tokens[name], uses.get(name) if uses is not None else None
    return {
        "name": name,
        "projects": [one or NO_PROJECT for one in token.projects],
        "servers": list(token.servers),
        "scopes": " ".join(token.scopes),
        "tools": list(token.tools or ()),
        "expires": show_expiry(token.expires),
        "expired": has_expired(token.expires),
        "never": "unknown: the audit cannot be read" if uses is None else "never",
        "used_ms": use.time_ms if use is not None else None,
        "used_ago_s": time.time() - use.time_ms / 1000 if use is not None else None,
        "client": use.client if use is not None else "",
    }


def _choices(config: GatewayConfig) -> dict[str, Any]:
    return {
        "no_project": NO_PROJECT,
        "projects": {NO_PROJECT: "without a project", **{one: one for one in config.projects}},
        "servers": {one: one for one in config.servers},
        "scopes": SCOPE_CHOICES,
    }


def _token_of(view: View) -> str:
    name, known = view.path("id"), view.parts.current.config.tokens
    if name not in known:
        raise _unknown("token", name, list(known))
    return name


def _unknown(kind: str, name: str, known: Sequence[str]) -> OwnerError:
    near = closest(name[:64], known)
    return OwnerError(
        f"unknown_{kind}", f"There is no {kind} `{name[:64]}`.{f' Did you mean `{near}`?' if near else ''}"
    )


SCREEN = Screen(
    name="tokens",
    title="Tokens",
    icon="tokens",
    path=PATH,
    routes=[
        ("GET", PATH, show),
        ("POST", PATH, create),
        ("GET", PATH + "/{id}", show_one),
        ("POST", PATH + "/{id}", change),
        ("POST", PATH + "/{id}/revoke", revoke),
        ("POST", "/page/grants/{id}/revoke", revoke_grant_of),
    ],
)
