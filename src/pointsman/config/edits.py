"""Adds, changes and removes entries of the configuration file; every other character stays as it was."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from pointsman.config.errors import ConfigError, ConfigProblem, closest
from pointsman.config.files import Rewritten, rewrite
from pointsman.config.loader import validate
from pointsman.config.pasted import CLIENT_SECTION, mended_id
from pointsman.config.sections.value_types import MAX_ID_CHARS
from pointsman.config.yaml.document import Document
from pointsman.config.yaml.text_edits import NOT_EDITABLE, EditError, Value, insert, put, remove
from pointsman.config.yaml.tree import compose_pasted

# `rewrite` or `preview` of config/files.py: what to do with the text that an edit changes.
Writer = Callable[[Path, Callable[[str], str]], Rewritten]

MAX_KEY = 1000  # YAML reads no longer one; an id is far shorter


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
    """The new entry is invalid. It was never written, so its problems have no position in the file."""

    def __init__(self, problems: Sequence[ConfigProblem]) -> None:
        self.messages = tuple(problem.message for problem in problems)
        super().__init__("\n".join(self.messages))


def add_token(
    path: Path,
    name: str,
    sha256: str,
    projects: Sequence[str],
    servers: Sequence[str],
    expires: str | None,
    environ: Mapping[str, str],
    write: Writer = rewrite,
    *,
    scopes: Sequence[str] = (),
    tools: Sequence[str] = (),
) -> Rewritten:
    """Empty `scopes` and `tools` are left out, and mean all.

    Raises NameTakenError, InvalidEntryError, ConfigError (the file is not YAML), EditError, ReplaceError.
    """
    token: dict[str, Any] = {"sha256": sha256, "projects": list(projects), "servers": list(servers)}
    token |= {key: list(given) for key, given in (("scopes", scopes), ("tools", tools)) if given}
    if expires is not None:
        token["expires"] = expires
    return add_entry(path, "tokens", name, token, environ, write)


def remove_token(path: Path, name: str, environ: Mapping[str, str], write: Writer = rewrite) -> Rewritten:
    """Raises UnknownNameError, InvalidEntryError (another entry needs it), ConfigError, EditError, ReplaceError."""
    return remove_entry(path, "tokens", name, environ, write)


def set_token(
    path: Path, name: str, values: Mapping[str, Value], environ: Mapping[str, str], write: Writer = rewrite
) -> Rewritten:
    """Set keys of a token, such as `projects`. Raises as `remove_token`."""

    def change(text: str) -> str:
        for key, value in values.items():
            old = _document(text, str(path), environ)
            tokens = _entries(old, "tokens")
            if name not in tokens:
                raise UnknownNameError("tokens", name, closest(name, tokens))
            text = _with_value(old, text, ("tokens", name, key), value)
        return text

    return write(path, change)


def replace_token_hash(path: Path, old: str, new: str, environ: Mapping[str, str]) -> None:
    """Give the token with the hash `old` another secret; its name and rights stay.

    Raises UnknownNameError (no token has that hash), InvalidEntryError, ConfigError, EditError, ReplaceError.
    """

    def change(text: str) -> str:
        document = _document(text, str(path), environ)
        entries = _entries(document, "tokens")
        name = next((name for name, token in entries.items() if _hash_of(token) == old), None)
        if name is None:
            raise UnknownNameError("tokens", old, None)
        return _with_value(document, text, ("tokens", name, "sha256"), new)

    rewrite(path, change)


def _hash_of(token: object) -> str | None:
    sha256 = token.get("sha256") if isinstance(token, dict) else None
    return sha256.lower() if isinstance(sha256, str) else None


def add_server(
    path: Path, server_id: str, entry: Mapping[str, Any], environ: Mapping[str, str], write: Writer = rewrite
) -> Rewritten:
    """Add a server, also one that refers to variables that are not set here: the gateway may have them.

    Raises NameTakenError, InvalidEntryError, ConfigError (the file is not YAML), EditError, ReplaceError.
    """

    def change(text: str) -> str:
        old = _document(text, str(path), environ)
        if _find_server(old, server_id) is not None:
            raise NameTakenError("servers", server_id)
        return _with_entry(old, text, "servers", server_id, entry, unset_allowed=True)

    return write(path, change)


def remove_server(path: Path, server_id: str, environ: Mapping[str, str], write: Writer = rewrite) -> Rewritten:
    """Raises UnknownNameError, InvalidEntryError (another entry names it), ConfigError, EditError, ReplaceError."""

    def change(text: str) -> str:
        old = _document(text, str(path), environ)
        return _without_entry(old, text, *_require_server(old, server_id))

    return write(path, change)


def enable_server(
    path: Path, server_id: str, enabled: bool, environ: Mapping[str, str], write: Writer = rewrite
) -> Rewritten:
    """Set `enabled`, or `disabled` where a client's block has it. Raises as `remove_server`."""

    def change(text: str) -> str:
        old = _document(text, str(path), environ)
        section, name = _require_server(old, server_id)
        entry = _entries(old, section)[name]
        opposite = isinstance(entry, dict) and "disabled" in entry
        key = ("disabled", not enabled) if opposite else ("enabled", enabled)
        return _with_value(old, text, (section, name, key[0]), key[1])

    return write(path, change)


def set_server(
    path: Path,
    server_id: str,
    values: Mapping[tuple[str, ...], Value],
    environ: Mapping[str, str],
    write: Writer = rewrite,
) -> Rewritten:
    """Set values of a server, each by its path, such as `("tool_permissions", "erase")`. Raises as `remove_server`."""

    def change(text: str) -> str:
        for keys, value in values.items():
            old = _document(text, str(path), environ)
            text = _with_value(old, text, (*_require_server(old, server_id), *keys), value)
        return text

    return write(path, change)


def set_project(
    path: Path, project_id: str, values: Mapping[str, Any], environ: Mapping[str, str], write: Writer = rewrite
) -> Rewritten:
    """Set keys of a project; of `unassigned` for the empty id. Raises as `remove_server`."""

    def change(text: str) -> str:
        for key, value in values.items():
            old = _document(text, str(path), environ)
            projects = _entries(old, "projects")
            if project_id and project_id not in projects:
                raise UnknownNameError("projects", project_id, closest(project_id, projects))
            parents = ("projects", project_id) if project_id else ("unassigned",)
            text = _with_value(old, text, (*parents, key), value)
        return text

    return write(path, change)


def add_project(
    path: Path, project_id: str, values: Mapping[str, Any], environ: Mapping[str, str], write: Writer = rewrite
) -> Rewritten:
    """Raises as `add_server`."""
    return add_entry(path, "projects", project_id, values, environ, write)


def remove_project(path: Path, project_id: str, environ: Mapping[str, str], write: Writer = rewrite) -> Rewritten:
    """Raises as `remove_server`."""
    return remove_entry(path, "projects", project_id, environ, write)


def _find_server(document: Document, server_id: str) -> tuple[str, str] | None:
    """The section and the key of a server, by its id or by the name from which the id was made."""
    wanted = mended_id(server_id) or server_id
    for section in ("servers", CLIENT_SECTION):
        names = _entries(document, section)
        if server_id in names:
            return section, server_id
        found = next((name for name in names if mended_id(name) == wanted), None)
        if found is not None:
            return section, found
    return None


def _require_server(document: Document, server_id: str) -> tuple[str, str]:
    found = _find_server(document, server_id)
    if found is None:
        known = [mended_id(name) for section in ("servers", CLIENT_SECTION) for name in _entries(document, section)]
        raise UnknownNameError("servers", server_id, closest(server_id, known))
    return found


def add_entry(
    path: Path, section: str, name: str, value: Mapping[str, Any], environ: Mapping[str, str], write: Writer = rewrite
) -> Rewritten:
    def change(text: str) -> str:
        old = _document(text, str(path), environ)
        if name in _entries(old, section):
            raise NameTakenError(section, name)
        return _with_entry(old, text, section, name, value)

    return write(path, change)


def add_entries(
    path: Path,
    section: str,
    entries: Mapping[str, Mapping[str, Any]],
    environ: Mapping[str, str],
    write: Writer = rewrite,
) -> Rewritten:
    """Add several at once: all of them, or none."""

    def change(text: str) -> str:
        old = _document(text, str(path), environ)
        expected = dict(_entries(old, section))
        new = text
        for name, value in entries.items():
            if name in expected:
                raise NameTakenError(section, name)
            new = insert(new, compose_pasted(new, str(path)), section, name, value)
            expected[name] = None
        added = _document(json.dumps({section: entries}), str(path), environ)  # as they are read back
        return _checked(old, new, section, {**_entries(old, section), **_entries(added, section)})

    return write(path, change)


def remove_entry(path: Path, section: str, name: str, environ: Mapping[str, str], write: Writer = rewrite) -> Rewritten:
    def change(text: str) -> str:
        old = _document(text, str(path), environ)
        entries = _entries(old, section)
        if name not in entries:
            raise UnknownNameError(section, name, closest(name, entries))
        return _without_entry(old, text, section, name)

    return write(path, change)


def variables_not_set(section: str, name: str, value: Mapping[str, Any], environ: Mapping[str, str]) -> list[str]:
    """The variables that an entry needs and that the environment lacks."""
    return sorted(set(_document(json.dumps({section: {name: value}}), "", environ).not_set.values()))


def _with_entry(
    old: Document, text: str, section: str, name: str, value: Mapping[str, Any], *, unset_allowed: bool = False
) -> str:
    if len(name) > MAX_KEY:
        reason = f"must have at most {MAX_ID_CHARS} characters"
        raise InvalidEntryError(
            [ConfigProblem(old.file_name, None, None, f"{section}.{name[:MAX_ID_CHARS]}...", reason)]
        )
    added = _document(json.dumps({section: {name: value}}), old.file_name, old.environ)  # as it is read back
    new = insert(text, old.root, section, name, value)
    tolerated = added.not_set if unset_allowed else ()
    return _checked(old, new, section, {**_entries(old, section), **_entries(added, section)}, tolerated)


def _without_entry(old: Document, text: str, section: str, name: str) -> str:
    new = remove(text, old.root, section, name)
    rest = {key: value for key, value in _entries(old, section).items() if key != name}
    return _checked(old, new, section, rest)


def _with_value(old: Document, text: str, keys: tuple[str, ...], value: Value) -> str:
    """Set one value below a section: `(section, key)`, `(section, entry, key)` or deeper."""
    section, *steps = keys
    expected = dict(_entries(old, section))
    holder = expected
    for step in steps[:-1]:
        holder[step] = dict(holder.get(step) or {})
        holder = holder[step]
    holder[steps[-1]] = value
    return _checked(old, put(text, old.root, keys, value), section, expected)


def _checked(
    old: Document, text: str, section: str, expected: Mapping[str, Any], tolerated: Collection[str] = ()
) -> str:
    """Return the new text if it has exactly the expected entries and no problem that the old text did not have.

    `tolerated` are reasons of problems that may be new.

    Problems of the old text do not count: environment variables that only the daemon has are missing in the shell in
    which a token is revoked.
    """
    try:
        new = _document(text, old.file_name, old.environ)
    except ConfigError:
        raise EditError(NOT_EDITABLE.format(section)) from None
    rest_of_old, rest_of_new = ({**_data(document), section: None} for document in (old, new))
    if rest_of_old != rest_of_new or _entries(new, section) != expected:
        raise EditError(NOT_EDITABLE.format(section))
    known = {(problem.key, problem.reason) for problem in _problems(old)}
    found = [problem for problem in _problems(new) if problem.reason not in tolerated]
    fresh = [problem for problem in found if (problem.key, problem.reason) not in known]
    if fresh:
        raise InvalidEntryError(fresh)
    return text


def _document(text: str, file_name: str, environ: Mapping[str, str]) -> Document:
    """With the references of disabled servers resolved, too: enabling one must change nothing but that."""
    return Document(text, file_name, environ, resolve_disabled=lambda name: True)


def _entries(document: Document, section: str) -> dict[str, Any]:
    entries = _data(document).get(section)
    return entries if isinstance(entries, dict) else {}


def _data(document: Document) -> dict[str, Any]:
    return document.data if isinstance(document.data, dict) else {}


def _problems(document: Document) -> Sequence[ConfigProblem]:
    try:
        validate(document)
    except ConfigError as error:
        return error.problems
    return ()
