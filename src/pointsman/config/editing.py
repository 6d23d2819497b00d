"""Edits of the configuration file by programs: comments, order and quoting stay as the person wrote them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pointsman.config.document import Document
from pointsman.config.errors import ConfigError, ConfigProblem, near
from pointsman.config.loading import check
from pointsman.config.replacing import rewrite
from pointsman.config.splice import EditError, insert, remove

_BY_HAND = "`{}` is written in a way that only a person can edit"


class NameTakenError(Exception):
    def __init__(self, section: str, name: str) -> None:
        super().__init__(f"`{section}.{name}` exists already.")
        self.name = name


class UnknownNameError(Exception):
    def __init__(self, section: str, name: str, hint: str | None) -> None:
        super().__init__(f"There is no `{section}.{name}`.")
        self.name = name
        self.hint = hint


class InvalidEntryError(Exception):
    """The new entry itself is wrong. It was never written, so its problems have no place in the file."""

    def __init__(self, problems: Sequence[ConfigProblem]) -> None:
        super().__init__("\n".join(problem.complaint for problem in problems))


def add_token(
    path: Path,
    name: str,
    sha256: str,
    projects: Sequence[str],
    servers: Sequence[str],
    expires: str | None,
    environ: Mapping[str, str],
) -> None:
    """Raises NameTakenError, InvalidEntryError, ConfigError (the file is no YAML), EditError, ReplaceError."""
    token: dict[str, Any] = {"sha256": sha256, "projects": list(projects), "servers": list(servers)}
    if expires is not None:
        token["expires"] = expires
    add_entry(path, "tokens", name, token, environ)


def remove_token(path: Path, name: str, environ: Mapping[str, str]) -> None:
    """Raises UnknownNameError, InvalidEntryError (something else needs it), ConfigError, EditError, ReplaceError."""
    remove_entry(path, "tokens", name, environ)


def add_entry(path: Path, section: str, name: str, value: Mapping[str, Any], environ: Mapping[str, str]) -> None:
    def change(text: str) -> str:
        old = Document(text, str(path), environ)
        entries = _entries(old, section)
        if name in entries:
            raise NameTakenError(section, name)
        alone = Document(json.dumps({section: {name: value}}), str(path), environ)  # as it is read, references filled
        new = insert(text, old.root, section, name, value)
        return _checked(old, new, section, {**entries, **_entries(alone, section)})

    rewrite(path, change)


def remove_entry(path: Path, section: str, name: str, environ: Mapping[str, str]) -> None:
    def change(text: str) -> str:
        old = Document(text, str(path), environ)
        entries = _entries(old, section)
        if name not in entries:
            raise UnknownNameError(section, name, near(name, entries))
        new = remove(text, old.root, section, name)
        return _checked(old, new, section, {key: value for key, value in entries.items() if key != name})

    rewrite(path, change)


def _checked(old: Document, text: str, section: str, expected: Mapping[str, Any]) -> str:
    """The new text, if it says exactly what it should and is no more wrong than the old one was.

    A problem that was there before is no reason to refuse: variables that only the daemon has are missing in the
    shell of the person who revokes a token.
    """
    try:
        new = Document(text, old.file_name, old.environ)
    except ConfigError:
        raise EditError(_BY_HAND.format(section)) from None
    rest_of_old, rest_of_new = ({**_data(document), section: None} for document in (old, new))
    if rest_of_old != rest_of_new or _entries(new, section) != expected:
        raise EditError(_BY_HAND.format(section))
    known = {(problem.key, problem.reason) for problem in _problems(old)}
    fresh = [problem for problem in _problems(new) if (problem.key, problem.reason) not in known]
    if fresh:
        raise InvalidEntryError(fresh)
    return text


def _entries(document: Document, section: str) -> dict[str, Any]:
    entries = _data(document).get(section)
    return entries if isinstance(entries, dict) else {}


def _data(document: Document) -> dict[str, Any]:
    return document.data if isinstance(document.data, dict) else {}


def _problems(document: Document) -> Sequence[ConfigProblem]:
    try:
        check(document)
    except ConfigError as error:
        return error.problems
    return ()
