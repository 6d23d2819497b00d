"""Adds and removes entries of the configuration file; every other character stays as it was.

A round trip through a YAML library would reflow lists, quotes, indentation and comments.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ruamel.yaml.nodes import MappingNode, Node, ScalarNode

from pointsman.config.errors import ConfigError, ConfigProblem, closest
from pointsman.config.files import rewrite
from pointsman.config.loader import validate
from pointsman.config.pasted import CLIENT_SECTION, mended_id
from pointsman.config.yaml.document import Document
from pointsman.config.yaml.tree import CORE, NULL, child, compose, compose_pasted

_NOT_EDITABLE = "`{}` is written in a form that Pointsman cannot edit safely; edit the file by hand"


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
        super().__init__("\n".join(problem.message for problem in problems))


def add_token(
    path: Path,
    name: str,
    sha256: str,
    projects: Sequence[str],
    servers: Sequence[str],
    expires: str | None,
    environ: Mapping[str, str],
) -> None:
    """Raises NameTakenError, InvalidEntryError, ConfigError (the file is not YAML), EditError, ReplaceError."""
    token: dict[str, Any] = {"sha256": sha256, "projects": list(projects), "servers": list(servers)}
    if expires is not None:
        token["expires"] = expires
    add_entry(path, "tokens", name, token, environ)


def remove_token(path: Path, name: str, environ: Mapping[str, str]) -> None:
    """Raises UnknownNameError, InvalidEntryError (another entry needs it), ConfigError, EditError, ReplaceError."""
    remove_entry(path, "tokens", name, environ)


def replace_token_hash(path: Path, old: str, new: str, environ: Mapping[str, str]) -> None:
    """Give the token with the hash `old` another secret; its name and rights stay.

    Raises UnknownNameError (no token has that hash), InvalidEntryError, ConfigError, EditError, ReplaceError.
    """

    def change(text: str) -> str:
        document = Document(text, str(path), environ)
        entries = _entries(document, "tokens")
        name = next((name for name, token in entries.items() if _hash_of(token) == old), None)
        if name is None:
            raise UnknownNameError("tokens", old, None)
        return _with_value(document, text, ("tokens", name, "sha256"), new)

    rewrite(path, change)


def _hash_of(token: object) -> str | None:
    sha256 = token.get("sha256") if isinstance(token, dict) else None
    return sha256.lower() if isinstance(sha256, str) else None


def add_server(path: Path, server_id: str, entry: Mapping[str, Any], environ: Mapping[str, str]) -> None:
    """Raises NameTakenError, InvalidEntryError, ConfigError (the file is not YAML), EditError, ReplaceError."""

    def change(text: str) -> str:
        old = Document(text, str(path), environ)
        if _find_server(old, server_id) is not None:
            raise NameTakenError("servers", server_id)
        return _with_entry(old, text, "servers", server_id, entry)

    rewrite(path, change)


def remove_server(path: Path, server_id: str, environ: Mapping[str, str]) -> None:
    """Raises UnknownNameError, InvalidEntryError (another entry names it), ConfigError, EditError, ReplaceError."""

    def change(text: str) -> str:
        old = Document(text, str(path), environ)
        return _without_entry(old, text, *_require_server(old, server_id))

    rewrite(path, change)


def enable_server(path: Path, server_id: str, enabled: bool, environ: Mapping[str, str]) -> None:
    """Set `enabled`, or `disabled` where a client's block has it. Raises as `remove_server`."""

    def change(text: str) -> str:
        old = Document(text, str(path), environ)
        section, name = _require_server(old, server_id)
        entry = _entries(old, section)[name]
        opposite = isinstance(entry, dict) and "disabled" in entry
        key = ("disabled", not enabled) if opposite else ("enabled", enabled)
        return _with_value(old, text, (section, name, key[0]), key[1])

    rewrite(path, change)


def set_project(path: Path, project_id: str, values: Mapping[str, Any], environ: Mapping[str, str]) -> None:
    """Set keys of a project; of `unassigned` for the empty id. Raises as `remove_server`."""

    def change(text: str) -> str:
        for key, value in values.items():
            old = Document(text, str(path), environ)
            projects = _entries(old, "projects")
            if project_id and project_id not in projects:
                raise UnknownNameError("projects", project_id, closest(project_id, projects))
            parents = ("projects", project_id) if project_id else ("unassigned",)
            text = _with_value(old, text, (*parents, key), value)
        return text

    rewrite(path, change)


def add_project(path: Path, project_id: str, values: Mapping[str, Any], environ: Mapping[str, str]) -> None:
    """Raises as `add_server`."""
    add_entry(path, "projects", project_id, values, environ)


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


def add_entry(path: Path, section: str, name: str, value: Mapping[str, Any], environ: Mapping[str, str]) -> None:
    def change(text: str) -> str:
        old = Document(text, str(path), environ)
        if name in _entries(old, section):
            raise NameTakenError(section, name)
        return _with_entry(old, text, section, name, value)

    rewrite(path, change)


def add_entries(path: Path, section: str, entries: Mapping[str, Mapping[str, Any]], environ: Mapping[str, str]) -> None:
    """Add several at once: all of them, or none."""

    def change(text: str) -> str:
        old = Document(text, str(path), environ)
        expected = dict(_entries(old, section))
        new = text
        for name, value in entries.items():
            if name in expected:
                raise NameTakenError(section, name)
            new = insert(new, compose_pasted(new, str(path)), section, name, value)
            expected[name] = None
        added = Document(json.dumps({section: entries}), str(path), environ)  # as they are read back
        return _checked(old, new, section, {**_entries(old, section), **_entries(added, section)})

    rewrite(path, change)


def remove_entry(path: Path, section: str, name: str, environ: Mapping[str, str]) -> None:
    def change(text: str) -> str:
        old = Document(text, str(path), environ)
        entries = _entries(old, section)
        if name not in entries:
            raise UnknownNameError(section, name, closest(name, entries))
        return _without_entry(old, text, section, name)

    rewrite(path, change)


def _with_entry(old: Document, text: str, section: str, name: str, value: Mapping[str, Any]) -> str:
    added = Document(json.dumps({section: {name: value}}), old.file_name, old.environ)  # as it is read back
    new = insert(text, old.root, section, name, value)
    return _checked(old, new, section, {**_entries(old, section), **_entries(added, section)})


def _without_entry(old: Document, text: str, section: str, name: str) -> str:
    new = remove(text, old.root, section, name)
    rest = {key: value for key, value in _entries(old, section).items() if key != name}
    return _checked(old, new, section, rest)


def _with_value(old: Document, text: str, keys: tuple[str, ...], value: bool | str | None) -> str:
    """Set one value below a section: `(section, key)` or `(section, entry, key)`."""
    section, *steps = keys
    expected = dict(_entries(old, section))
    holder = expected
    for step in steps[:-1]:
        holder[step] = dict(holder.get(step) or {})
        holder = holder[step]
    holder[steps[-1]] = value
    return _checked(old, put(text, old.root, keys, value), section, expected)


def _checked(old: Document, text: str, section: str, expected: Mapping[str, Any]) -> str:
    """Return the new text if it has exactly the expected entries and no problem that the old text did not have.

    Problems of the old text do not count: environment variables that only the daemon has are missing in the shell in
    which a token is revoked.
    """
    try:
        new = Document(text, old.file_name, old.environ)
    except ConfigError:
        raise EditError(_NOT_EDITABLE.format(section)) from None
    rest_of_old, rest_of_new = ({**_data(document), section: None} for document in (old, new))
    if rest_of_old != rest_of_new or _entries(new, section) != expected:
        raise EditError(_NOT_EDITABLE.format(section))
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
        validate(document)
    except ConfigError as error:
        return error.problems
    return ()


_STEP = "  "
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./-]*")


class EditError(Exception):
    """The text cannot be edited safely. `str(error)` is shown to the person."""


def insert(text: str, root: Node | None, section: str, key: str, value: Mapping[str, Any]) -> str:
    """Add `key: value` as the last entry of `section`. `root` is the tree of the text, without that key."""
    newline = "\r\n" if "\r\n" in text else "\n"
    if root is None or root.tag == NULL:
        return _append_section(text, section, key, value, newline)
    if not isinstance(root, MappingNode):
        raise EditError("the file is not a mapping of keys to values")
    found = child(root, section)
    if found is None:
        if root.flow_style:
            return _insert_in_flow(text, root, section, {key: value}, newline)
        return _append_section(text, section, key, value, newline)
    heading, body = found
    if isinstance(body, MappingNode) and body.value:
        if body.flow_style:
            return _insert_in_flow(text, body, key, value, newline)
        return _insert_in_block(text, root, body, key, value, newline)
    if not _empty(body):
        raise EditError(f"`{section}` is not a mapping of keys to values")
    if root.flow_style:
        return _replace(text, body, json.dumps({key: value}, ensure_ascii=False))
    return _open_section(text, heading, body, _block(key, value, heading.start_mark.column + len(_STEP), newline))


def remove(text: str, root: Node | None, section: str, key: str) -> str:
    """Remove the entry `key` from `section`, with the comments inside it. `root` is the tree of the text."""
    found = child(root, section)
    body = found[1] if found else None
    if not isinstance(root, MappingNode) or not isinstance(body, MappingNode):
        raise EditError(f"`{section}` is not a mapping of keys to values")
    index = next((i for i, (node, _) in enumerate(body.value) if node.value == key), None)
    if index is None:
        raise EditError(f"`{section}.{key}` is not written out in this file (an alias or `<<`?); edit it by hand")
    if body.flow_style:
        return _remove_from_flow(text, body, index)
    start, end = _span(text, root, body, index)
    return text[:start] + text[end:]


def put(text: str, root: Node | None, keys: Sequence[str], value: bool | str | None) -> str:
    """Set the value at `keys`; all but the last two of them have to exist. `root` is the tree of the text."""
    newline = "\r\n" if "\r\n" in text else "\n"
    place = _find_parent(text, root, keys[:-1])
    if place is None:
        return insert_value(text, root, keys, value, newline)
    key, body = keys[-1], place.body
    line = f"{_scalar(key)}: {_inline(value)}{newline}"
    if _empty(body):
        if place.in_flow:
            return _replace(text, body, json.dumps({key: value}))
        return _open_section(text, place.heading, body, " " * (place.heading.start_mark.column + len(_STEP)) + line)
    if not isinstance(body, MappingNode):
        raise EditError(_NOT_EDITABLE.format(".".join(keys)))
    for own_key, own_value in body.value:
        if own_key.value == key:
            quoted = isinstance(value, str) and own_value.style == '"'
            return _replace_value(text, own_key, own_value, json.dumps(value) if quoted else _inline(value))
    if body.flow_style:
        return _insert_in_flow(text, body, key, value, newline)
    last = body.value[-1][0].start_mark
    end = _end_of_entry(text, last.index, last.column, place.end)
    gap = "" if text[:end].endswith("\n") else newline
    return f"{text[:end]}{gap}{' ' * body.value[0][0].start_mark.column}{line}{text[end:]}"


def insert_value(text: str, root: Node | None, keys: Sequence[str], value: bool | str | None, newline: str) -> str:
    """Add a section with one value."""
    if len(keys) != 2:
        raise EditError(_NOT_EDITABLE.format(".".join(keys)))
    section, key = keys
    if isinstance(root, MappingNode) and root.flow_style:
        return _insert_in_flow(text, root, section, {key: value}, newline)
    if text and not text.endswith("\n"):
        text += newline
    gap = newline if text.strip() else ""
    return f"{text}{gap}{section}:{newline}{_STEP}{_scalar(key)}: {_inline(value)}{newline}"


class _Place(NamedTuple):
    """A mapping in the text: the node of its key, its own node, and where what follows it begins."""

    heading: Node
    body: Node
    end: int
    in_flow: bool


def _find_parent(text: str, root: Node | None, steps: Sequence[str]) -> _Place | None:
    place, body, end, in_flow = None, root, len(text), False
    for step in steps:
        if not isinstance(body, MappingNode):
            return None
        in_flow = in_flow or bool(body.flow_style)
        index = next((i for i, (node, _) in enumerate(body.value) if node.value == step), None)
        if index is None:
            return None
        if index + 1 < len(body.value):
            end = body.value[index + 1][0].start_mark.index
        heading, body = body.value[index]
        place = _Place(heading, body, end, in_flow)
    return place


def _replace_value(text: str, key: Node, value: Node, new: str) -> str:
    if not isinstance(value, ScalarNode) or value.style in ("|", ">"):
        raise EditError(_NOT_EDITABLE.format(key.value))
    if value.end_mark.index > value.start_mark.index:
        return _replace(text, value, new)
    colon = text.index(":", key.end_mark.index) + 1
    return f"{text[:colon]} {new}{text[colon:]}"


def _append_section(text: str, section: str, key: str, value: Mapping[str, Any], newline: str) -> str:
    if text and not text.endswith("\n"):
        text += newline
    gap = newline if text.strip() else ""
    return f"{text}{gap}{section}:{newline}{_block(key, value, len(_STEP), newline)}"


def _open_section(text: str, heading: Node, body: Node, block: str) -> str:
    """Turn `tokens:`, `tokens: {}` or `tokens: null` into a section with one entry; keep a comment after it."""
    if body.end_mark.index > body.start_mark.index:
        head = text[: body.start_mark.index].rstrip(" ")
        text = head + text[body.end_mark.index :]
    end = text.find("\n", heading.end_mark.index) + 1
    if end == 0:
        newline = "\r\n" if "\r\n" in block else "\n"
        return text + newline + block
    return text[:end] + block + text[end:]


def _insert_in_block(
    text: str, root: MappingNode, body: MappingNode, key: str, value: Mapping[str, Any], newline: str
) -> str:
    _, end = _span(text, root, body, len(body.value) - 1)
    block = _block(key, value, body.value[0][0].start_mark.column, newline)
    gap = "" if text[:end].endswith("\n") else newline
    return text[:end] + gap + block + text[end:]


def _insert_in_flow(text: str, body: MappingNode, key: str, value: Any, newline: str) -> str:
    entry = f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}"
    if not body.value:
        return _replace(text, body, f"{{{entry}}}")
    last_key, last_value = body.value[-1]
    line_start = _line_start(text, last_key.start_mark.index)
    indent = text[line_start : last_key.start_mark.index]
    gap = f"{newline}{indent}" if line_start and not indent.strip() else " "
    end = last_value.end_mark.index
    return f"{text[:end]},{gap}{entry}{text[end:]}"


def _remove_from_flow(text: str, body: MappingNode, index: int) -> str:
    key, value = body.value[index]
    start, end = key.start_mark.index, value.end_mark.index
    if index > 0:
        start = body.value[index - 1][1].end_mark.index
    elif len(body.value) > 1:
        end = body.value[1][0].start_mark.index
    elif comma := re.compile(r"\s*,").match(text, end):  # one that needs nothing after it
        end = comma.end()
    return text[:start] + text[end:]


def _span(text: str, root: MappingNode, body: MappingNode, index: int) -> tuple[int, int]:
    """The range from the line of a block entry's key to the end of its last line.

    Trailing blank lines and comments belong to the next entry, unless they are indented deeper than this key.
    """
    key = body.value[index][0].start_mark
    if index + 1 < len(body.value):
        next_key = body.value[index + 1][0].start_mark.index
    else:
        next_key = next((k.start_mark.index for k, _ in root.value if k.start_mark.index > key.index), len(text))
    return _line_start(text, key.index), _end_of_entry(text, key.index, key.column, next_key)


def _end_of_entry(text: str, key: int, column: int, next_key: int) -> int:
    start = _line_start(text, key)
    end = _line_start(text, next_key) if next_key < len(text) else next_key
    while (last := _line_start(text, end - 1)) > start and _belongs_to_next(text[last:end], column):
        end = last
    return end


def _line_start(text: str, index: int) -> int:
    return text.rfind("\n", 0, index) + 1


def _belongs_to_next(line: str, column: int) -> bool:
    content = line.strip()
    if content in ("", "...") or line.startswith("{"):  # a block of JSON among the keys
        return True
    return content.startswith("#") and len(line) - len(line.lstrip()) <= column


def _replace(text: str, node: Node, new: str) -> str:
    return text[: node.start_mark.index] + new + text[node.end_mark.index :]


def _empty(node: Node) -> bool:
    return node.tag == NULL or (isinstance(node, MappingNode) and not node.value)


def _block(key: str, value: Mapping[str, Any], indent: int, newline: str) -> str:
    lines = [f"{' ' * indent}{_scalar(key)}:"]
    lines += [f"{' ' * indent}{_STEP}{_scalar(name)}: {_inline(item)}" for name, item in value.items()]
    return newline.join(lines) + newline


def _inline(value: Any) -> str:
    if isinstance(value, str):
        return _scalar(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_inline(item) for item in value)}]"
    return json.dumps(value, ensure_ascii=False)


def _scalar(text: str) -> str:
    """Unquoted if YAML reads the same text back, quoted otherwise."""
    if _PLAIN.fullmatch(text):
        node = compose(text, "")
        if isinstance(node, ScalarNode) and node.tag in (CORE + "str", CORE + "timestamp"):
            return text
    return json.dumps(text, ensure_ascii=False)
