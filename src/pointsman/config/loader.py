"""Loads the configuration: YAML in, a frozen model out, or a list of everything that is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from pydantic import ValidationError

from pointsman.config.errors import ConfigError, ConfigProblem, closest
from pointsman.config.files import NotRegularFileError, open_regular
from pointsman.config.model import (
    ANY,
    MAX_WORKERS,
    NO_WORKERS,
    RESERVED_SERVER_ID,
    UNASSIGNED,
    GatewayConfig,
    State,
    Token,
)
from pointsman.config.model_errors import explain
from pointsman.config.pasted import CLIENT_SECTION, accept_pasted, mended_id
from pointsman.config.tool_patterns import named_server
from pointsman.config.yaml.document import Document, KeyPath, render

if TYPE_CHECKING:
    from pointsman.config.secret_reader import SecretReader

MAX_BYTES = 8 * 1_048_576

_PLAIN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_GRANT = "grant"  # `@grant/ID` is a client that signed in at the gateway itself
_READ_BY_ALL = frozenset({"listen", "projects", "tokens", "unassigned"})
_RESERVED_PROJECT = "UNASSIGNED_PROJECT_ID"  # in a request, the word for "no project"


class Loaded(Struct, frozen=True):
    """A configuration, and the texts in it that came from the environment or from files: they may be secrets."""

    config: GatewayConfig
    external_texts: frozenset[str]


def load(
    path: Path, environ: Mapping[str, str], *, tried: str | None = None, secrets: SecretReader | None = None
) -> GatewayConfig:
    """Load a file. Reject an empty one: it would silently revoke every right. Raises ConfigError.

    The references of a disabled server are resolved only if it is the one that is `tried`. Commands and keyrings are
    asked through `secrets`, once the file is valid in all else; of servers only for the one that is `tried`, if any.
    """
    text = read_text(path)
    if not text.strip():
        reason = "is empty; restore it from a backup, or delete it and run `pointsman serve` to create a new one"
        raise ConfigError([_whole_file(path, reason)])

    def is_tried(name: str) -> bool:
        return mended_id(name) == tried

    document = Document(text, str(path), environ, resolve_disabled=is_tried)
    config = validate(document)
    if secrets is None:
        return config
    with secrets.loading():
        if not document.secrets:
            return config
        return validate(
            Document(
                text,
                str(path),
                environ,
                resolve_disabled=is_tried,
                secrets=secrets,
                read_secrets_of=is_tried if tried is not None else lambda name: True,
            )
        )


def parse(text: str, file_name: str, environ: Mapping[str, str]) -> GatewayConfig:
    """Raises ConfigError."""
    return examine(text, file_name, environ).config


def examine(text: str, file_name: str, environ: Mapping[str, str]) -> Loaded:
    """Raises ConfigError."""
    document = Document(text, file_name, environ)
    return Loaded(validate(document), frozenset(document.external_texts))


def validate(document: Document) -> GatewayConfig:
    """Raises ConfigError with all problems at once."""
    accept_pasted(document)
    _check_secrets_are_allowed(document)
    _check_names(document)
    try:
        config = GatewayConfig.model_validate(document.data, context={"folder": document.folder})
    except ValidationError as error:
        explain(error, document)
        if _asks_for_workers_on_database(document.data):
            document.add_problem(("workers",), NO_WORKERS)
        raise ConfigError(document.problems) from None
    if config.workers > 1 and config.state.database is not None:
        document.add_problem(("workers",), NO_WORKERS)
    if document.problems:
        raise ConfigError(document.problems)
    notes = sorted(document.notes, key=lambda note: (note.line or 0, note.column or 0))
    unread = (render(path) for path, is_unread in document.secrets.items() if is_unread)
    return config.with_notes((str(note) for note in notes), _empty_variables(document), unread)


def _asks_for_workers_on_database(data: object) -> bool:
    """For a file with other problems, of which there is no model to ask."""
    if not isinstance(data, dict):
        return False
    workers, state = data.get("workers"), data.get("state")
    several = isinstance(workers, int) and 1 < workers <= MAX_WORKERS
    return several and isinstance(state, dict) and bool(state.get("database"))


def _check_secrets_are_allowed(document: Document) -> None:
    """Commands without a gateway read these sections, too, and they ask no command and no keyring."""
    for path in document.secrets:
        if path[0] in _READ_BY_ALL:
            document.reject(
                path, "takes no `${cmd:...}` and no `${keyring:...}`; write the value, `${NAME}` or `${file:PATH}`"
            )


def _empty_variables(document: Document) -> dict[str, tuple[str, ...]]:
    """By server: the variables that its entry refers to as `${NAME:-}` and that have no value."""
    names: dict[str, set[str]] = {}
    for path, variable in document.empty:
        if len(path) > 2 and path[0] in ("servers", CLIENT_SECTION):
            names.setdefault(mended_id(str(path[1])), set()).add(variable)
    return {server_id: tuple(sorted(found)) for server_id, found in names.items()}


def load_tokens(path: Path, environ: Mapping[str, str]) -> Mapping[str, Token]:
    """The tokens alone, even if the rest of the file is invalid. Raises ConfigError."""
    document = Document(read_text(path), str(path), environ)
    data = document.data if isinstance(document.data, dict) else {}
    try:
        return GatewayConfig.model_validate({"tokens": data.get("tokens")}).tokens
    except ValidationError as error:
        explain(error, document)
        raise ConfigError(document.problems) from None


def load_state(path: Path, environ: Mapping[str, str]) -> State:
    """The section `state` alone, even if the rest of the file is invalid. Raises ConfigError."""
    text = read_text(path)
    if "state" not in text:
        return State()
    document = Document(text, str(path), environ)
    data = document.data if isinstance(document.data, dict) else {}
    if document.secrets.get(("state", "database")):
        reason = "is read from a command or a keyring by the gateway only; set POINTSMAN_DATABASE for this command"
        document.add_problem(("state", "database"), reason)
        raise ConfigError(document.problems)
    try:
        return GatewayConfig.model_validate({"state": data.get("state") or {}}).state
    except ValidationError as error:
        explain(error, document)
        raise ConfigError(document.problems) from None


def read_text(path: Path) -> str:
    """The text of a configuration file, with its line endings as they are. Raises ConfigError."""
    try:
        with open_regular(path) as file:
            raw = file.read(MAX_BYTES + 1)
    except NotRegularFileError as error:
        reason = f"is a {error.kind}; the configuration must be a regular file"
        raise ConfigError([_whole_file(path, reason)]) from None
    except OSError as error:
        raise ConfigError([_whole_file(path, f"cannot be read: {error.strerror}")]) from None
    if len(raw) > MAX_BYTES:
        raise ConfigError([_whole_file(path, f"is larger than {MAX_BYTES} bytes")])
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, column = raw.count(b"\n", 0, error.start) + 1, error.start - raw.rfind(b"\n", 0, error.start)
        raise ConfigError([ConfigProblem(str(path), line, column, "", "is not UTF-8 text")]) from None


def advice(config: GatewayConfig) -> tuple[str, ...]:
    """Warnings about what is valid but hardly intended, each with its keys and the next step."""
    return (
        *_state_advice(config),
        *_cloud_advice(config),
        *_confirm_advice(config),
        *_auth_advice(config),
        *_caller_advice(config),
    )


def _auth_advice(config: GatewayConfig) -> tuple[str, ...]:
    return tuple(
        f"`auth`: issuer `{one.name}` has no rules in `claims`, so nobody can sign in there; see docs/guide/sign-in.md."
        for one in config.auth
        if not one.claims
    )


def _caller_advice(config: GatewayConfig) -> tuple[str, ...]:
    """Headers for a caller that cannot exist are never used."""
    return tuple(
        f"`servers.{server_id}.caller_headers.{name}`: {reason}"
        for server_id, server in config.servers.items()
        for name in server.caller_headers
        if (reason := _unknown_caller(config, name))
    )


def _unknown_caller(config: GatewayConfig, name: str) -> str:
    """Why no caller has this name; empty: one may have it."""
    if not name.startswith("@"):
        if name in config.tokens:
            return ""
        near = closest(name, config.tokens)
        hint = f" Did you mean `{near}`?" if near else ""
        return f"no token is called `{name}`, so these headers are never used.{hint}"
    issuer = name[1:].partition("/")[0]
    if issuer in (_GRANT, *(one.name for one in config.auth)):
        return ""
    return f"`auth` has no issuer `{issuer}`, so these headers are never used."


def _state_advice(config: GatewayConfig) -> tuple[str, ...]:
    if config.state.database is None or config.state.request_keys:
        return ()
    return ("`state.database` needs `state.request_keys`, or the variable POINTSMAN_REQUEST_KEY, at a start.",)


def _cloud_advice(config: GatewayConfig) -> tuple[str, ...]:
    projects = cloud_projects(config)
    if config.cloud_search is not None or not projects:
        return ()
    sections = ("unassigned" if project_id is None else f"projects.{project_id}" for project_id in projects)
    keys = ", ".join(f"`{section}.optimization`" for section in sections)
    return (f"{keys}: `cloud` needs `cloud_search` with `url` and `token`; until it is set, the local search answers.",)


def _confirm_advice(config: GatewayConfig) -> tuple[str, ...]:
    """A pattern of a server that names another one asks for nothing."""
    return tuple(
        f"`servers.{server_id}.confirm`: `{pattern}` names another server, so no call needs a yes because of it."
        for server_id, server in config.servers.items()
        if isinstance(server.confirm, tuple)
        for pattern in server.confirm
        if named_server(pattern) not in (None, server_id)
    )


def cloud_projects(config: GatewayConfig) -> tuple[str | None, ...]:
    """The projects with `optimization: cloud`; None stands for callers without a project."""
    projects = [project_id for project_id, project in config.projects.items() if project.optimization == "cloud"]
    return (*projects, None) if config.unassigned.optimization == "cloud" else tuple(projects)


def _whole_file(path: Path, reason: str) -> ConfigProblem:
    return ConfigProblem(str(path), None, None, "", reason)


def _check_names(document: Document) -> None:
    """Check that every project and server which one section names is defined in another.

    Works on plain data, so it reports these problems together with those that the model finds.
    """
    projects, servers = _section(document, "projects"), _section(document, "servers")
    for server_id, server in servers.items():
        for path, project in _listed_names(("servers", server_id, "projects"), server):
            _require_defined(document, path, "project", project, projects)
    tokens = ((("tokens", token_id), token) for token_id, token in _section(document, "tokens").items())
    for base, rights in (*tokens, *_claim_rules(document)):
        _check_rights(document, base, rights)
    for project_id, project in projects.items():
        _check_patterns(document, ("projects", project_id, "tools"), project)
    _check_patterns(document, ("unassigned", "tools"), _section(document, "unassigned"))
    _check_confirm(document)
    if _RESERVED_PROJECT in projects:
        document.add_problem(
            ("projects", _RESERVED_PROJECT), "is reserved for `no project`; choose another id", key=True
        )
    if RESERVED_SERVER_ID in servers:
        free = next(name for name in _new_names(RESERVED_SERVER_ID) if name not in servers)
        reason = f"is reserved for the gateway's own tools; choose another id, such as `{free}`"
        if document.origin(("servers", RESERVED_SERVER_ID))[0] == CLIENT_SECTION:
            reason += ", or delete the entry if it is this gateway itself"
        document.add_problem(("servers", RESERVED_SERVER_ID), reason, key=True)
    _check_secrets_are_unique(document)


def _check_rights(document: Document, base: KeyPath, rights: object) -> None:
    """Of a token, or of a rule of `auth`."""
    for path, project in _listed_names((*base, "projects"), rights):
        _require_defined(document, path, "project", project, _section(document, "projects"), also=(ANY, UNASSIGNED))
    for path, server in _listed_names((*base, "servers"), rights):
        _require_defined(document, path, "server", server, _section(document, "servers"), also=(ANY,))
    _check_patterns(document, (*base, "tools"), rights)


def _claim_rules(document: Document) -> Iterator[tuple[KeyPath, object]]:
    """The rules of all issuers, whether `auth` is a list or one of them."""
    auth = document.data.get("auth") if isinstance(document.data, dict) else None
    one: list[tuple[KeyPath, object]] = [(("auth",), auth)]
    listed = [(("auth", index), each) for index, each in enumerate(auth)] if isinstance(auth, list) else one
    for path, issuer in listed:
        rules = issuer.get("claims") if isinstance(issuer, dict) else None
        for name, rule in rules.items() if isinstance(rules, dict) else ():
            yield (*path, "claims", name), rule


def _check_confirm(document: Document) -> None:
    for section in ("servers", "projects", "tokens"):
        for entry_id, entry in _section(document, section).items():
            _check_patterns(document, (section, entry_id, "confirm"), entry)
    _check_patterns(document, ("unassigned", "confirm"), _section(document, "unassigned"))
    for base, rule in _claim_rules(document):
        _check_patterns(document, (*base, "confirm"), rule)


def _check_patterns(document: Document, path: KeyPath, entry: object) -> None:
    """A misspelt server in a pattern with `!` would leave open what it is meant to close."""
    for at, pattern in _listed_names(path, entry):
        server_id = named_server(pattern)
        if server_id is None or ":" not in pattern or not _PLAIN_ID.fullmatch(server_id):
            continue  # it fits several servers, or the model reports it
        servers = _section(document, "servers")
        secret = pattern in document.external_texts and server_id not in servers
        _require_defined(document, at, "server", pattern if secret else server_id, servers)


def _new_names(name: str) -> Iterator[str]:
    return (f"{name}-{number}" for number in count(2))


def _check_secrets_are_unique(document: Document) -> None:
    first: dict[str, str] = {}
    for token_id, token in _section(document, "tokens").items():
        sha256 = token.get("sha256") if isinstance(token, dict) else None
        if not isinstance(sha256, str):
            continue
        other = first.setdefault(sha256.lower(), token_id)
        if other != token_id:
            reason = f"is the secret of token `{other}`, too; create a new one"
            document.add_problem(("tokens", token_id, "sha256"), reason)


def _require_defined(
    document: Document, path: KeyPath, kind: str, name: str, defined: Collection[str], also: tuple[str, ...] = ()
) -> None:
    if name in defined or name in also or document.is_unresolved(path):
        return
    if name in document.external_texts:  # may be a secret: do not repeat it
        document.add_problem(path, f"no such {kind}")
        return
    near = closest(name, defined)
    document.add_problem(path, f"no {kind} `{name}`{_remedy(kind, name) if near is None else ''}", near)


def _remedy(kind: str, name: str) -> str:
    if not _PLAIN_ID.fullmatch(name):
        return ""
    if kind == "project":
        return f"; add `projects: {{{name}: {{}}}}`, or run `pointsman project set {name} --create`"
    return f"; remove it here, or add the server with `pointsman server add {name} COMMAND`"


def _section(document: Document, name: str) -> dict[str, Any]:
    section = document.data.get(name) if isinstance(document.data, dict) else None
    return section if isinstance(section, dict) else {}


def _listed_names(path: KeyPath, entry: object) -> Iterator[tuple[KeyPath, str]]:
    names = entry.get(path[-1]) if isinstance(entry, dict) else None
    for index, name in enumerate(names if isinstance(names, list) else ()):
        if isinstance(name, str):
            yield (*path, index), name
