"""Checks across the file: what one part names must exist in another. Works on plain data, so that it never waits
for the rest of the file to be right."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from pointsman.config.document import Document, KeyPath
from pointsman.config.errors import near
from pointsman.config.model import ANY, UNASSIGNED

_RESERVED = "UNASSIGNED_PROJECT_ID"  # in a request, the word for "no project"


def cross_check(document: Document) -> None:
    projects, servers = _section(document, "projects"), _section(document, "servers")
    for server_id, server in servers.items():
        for path, project in _names(("servers", server_id, "projects"), server):
            _must_exist(document, path, "project", project, projects)
    for token_id, token in _section(document, "tokens").items():
        for path, project in _names(("tokens", token_id, "projects"), token):
            _must_exist(document, path, "project", project, projects, also=(ANY, UNASSIGNED))
        for path, server in _names(("tokens", token_id, "servers"), token):
            _must_exist(document, path, "server", server, servers, also=(ANY,))
    if _RESERVED in projects:
        document.complain(("projects", _RESERVED), "this id means `no project`; choose another one", key=True)
    _one_secret_one_token(document)


def _one_secret_one_token(document: Document) -> None:
    first: dict[str, str] = {}
    for token_id, token in _section(document, "tokens").items():
        sha256 = token.get("sha256") if isinstance(token, dict) else None
        if not isinstance(sha256, str):
            continue
        other = first.setdefault(sha256.lower(), token_id)
        if other != token_id:
            document.complain(("tokens", token_id, "sha256"), f"is the secret of token `{other}` too; make a new one")


def _must_exist(
    document: Document, path: KeyPath, kind: str, name: str, known: Collection[str], also: tuple[str, ...] = ()
) -> None:
    if name in known or name in also or path in document.unknown:
        return
    if name in document.filled:  # it came from outside the file: do not repeat it
        document.complain(path, f"no such {kind}")
        return
    document.complain(path, f"no {kind} `{name}`", near(name, known))


def _section(document: Document, name: str) -> dict[str, Any]:
    section = document.data.get(name) if isinstance(document.data, dict) else None
    return section if isinstance(section, dict) else {}


def _names(path: KeyPath, entry: object) -> Iterator[tuple[KeyPath, str]]:
    listed = entry.get(path[-1]) if isinstance(entry, dict) else None
    for index, name in enumerate(listed if isinstance(listed, list) else ()):
        if isinstance(name, str):
            yield (*path, index), name
