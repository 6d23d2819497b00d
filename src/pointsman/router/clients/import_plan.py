"""What an import would add: each server once, under an id that is free, its secrets in files; nothing is written."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pointsman.config.model import RESERVED_SERVER_ID
from pointsman.config.model_errors import sentence
from pointsman.config.pasted import MAX_ID, accept_pasted, mended_id
from pointsman.config.sections.server import Server
from pointsman.config.sections.value_types import ID_PATTERN
from pointsman.config.yaml.document import Document, render
from pointsman.config.yaml.references import secret_references
from pointsman.router.clients.found_servers import Findings, Found, LeftOut, points_here
from pointsman.router.clients.secret_files import FOLDER, move_secrets

_COMPARED = ("command", "args", "url", "env", "headers", "cwd")


@dataclass(frozen=True, slots=True)
class Addition:
    server_id: str
    found: Found
    server: Mapping[str, Any]  # as it is written: with references in the place of secrets
    secrets: Mapping[str, str]  # by the name of their file


@dataclass(slots=True)
class Plan:
    additions: list[Addition] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def servers(self) -> dict[str, Mapping[str, Any]]:
        return {addition.server_id: addition.server for addition in self.additions}

    @property
    def secrets(self) -> dict[str, str]:
        return {name: text for addition in self.additions for name, text in addition.secrets.items()}


def plan_import(
    findings: Iterable[Findings], text: str, config_path: Path, own_urls: Collection[str], environ: Mapping[str, str]
) -> Plan:
    """`text` is the configuration. Raises ConfigError if it is not YAML."""
    plan = Plan()
    document = Document(text, str(config_path), environ)
    existing = _servers_of(document)
    known = {_identity(entry): server_id for server_id, entry in existing.items()}
    secrets = {path.name for path in (config_path.absolute().parent / FOLDER).glob("*")}
    for one in findings:
        plan.left_out += one.left_out
        plan.problems += one.problems
        for found, expanded in zip(one.servers, _expanded(one.servers, config_path, environ), strict=True):
            reason = _secrets_in(found.server) or _reason_against({**expanded, "name": found.name}, known, own_urls)
            if reason is not None:
                plan.left_out.append(LeftOut(found.source, found.name, reason))
                continue
            server_id = free_id(found.name, {*existing, *plan.servers})
            known[_identity(expanded)] = server_id
            server, moved = move_secrets(server_id, found.server, {*secrets, *plan.secrets})
            named = {"name": found.name} if server_id != found.name else {}
            plan.additions.append(Addition(server_id, found, {**named, **server}, moved))
    return plan


def free_id(name: str, taken: Collection[str]) -> str:
    """An id made of the name: of a path the last part, with the characters that an id may have."""
    plain = mended_id(name)[:MAX_ID]
    stem = plain if plain and re.match(ID_PATTERN, plain) else "server"
    if stem not in taken and stem != RESERVED_SERVER_ID:
        return stem
    return next(one for number in range(2, 10**6) if (one := f"{stem}-{number}") not in taken)


def _servers_of(document: Document) -> dict[str, Any]:
    accept_pasted(document)
    servers = document.data.get("servers") if isinstance(document.data, dict) else None
    return servers if isinstance(servers, dict) else {}


def _expanded(found: list[Found], path: Path, environ: Mapping[str, str]) -> list[dict[str, Any]]:
    """The servers with their references resolved, as the gateway would see them."""
    if not found:
        return []
    listed = {str(index): one.server for index, one in enumerate(found)}
    data = Document(json.dumps({"servers": listed}), str(path), environ).data
    return list(data["servers"].values())


def _secrets_in(server: Mapping[str, Any]) -> str | None:
    """Why a server is left out that would run a command of the block's author, or read the keyring.

    In the arguments of a program, an escaped `$${cmd:...}` is literal: a shell has such words, too.
    """
    others = json.dumps({key: value for key, value in server.items() if key != "args"}).replace("$${", "${")
    if next(secret_references(others + json.dumps(server.get("args", []))), None) is None:
        return None
    return "it has `${cmd:...}` or `${keyring:...}`, which is never imported; write the entry under `servers` yourself"


def _identity(entry: Any) -> str:
    if not isinstance(entry, Mapping):
        return ""
    compared = {key: entry[key] for key in _COMPARED if entry.get(key)}
    return json.dumps(compared, sort_keys=True, default=str)


def _reason_against(server: Mapping[str, Any], known: Mapping[str, str], own_urls: Collection[str]) -> str | None:
    if points_here(server, own_urls):
        return "it is this gateway itself"
    twin = known.get(_identity(server))
    if twin is not None:
        return f"it is the same as `{twin}`"
    try:
        Server.model_validate(server)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        return f"it is not valid here: {render(tuple(first['loc'])) or 'the entry'} {sentence(first)}"
    return None
