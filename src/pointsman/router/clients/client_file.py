"""A client's file as text: read within bounds, one entry set or removed, and each change checked."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import Node, ScalarNode

from pointsman.config.errors import ConfigError
from pointsman.config.files import NotRegularFileError, open_regular
from pointsman.config.yaml.text_edits import EditError, insert, remove
from pointsman.config.yaml.tree import compose
from pointsman.router.clients import jsonc, toml_table
from pointsman.router.clients.dialects import Format

MAX_BYTES: Mapping[Format, int] = {"json": 32 * 1_048_576, "toml": 1_048_576, "yaml": 1_048_576}


_MAX_NODES = 200_000  # of YAML, with all aliases written out
_MAX_DEPTH = 64


class ClientFileError(Exception):
    """The file cannot be read or changed. `str(error)` is shown to the person at the terminal."""


@dataclass(frozen=True, slots=True)
class Contents:
    """A file at one moment. `text` is None if there is no file."""

    path: Path
    text: str | None
    data: Mapping[str, Any]

    def entries(self, section: str) -> Mapping[str, Any]:
        """The servers of the section; empty if there is none."""
        found = self.data.get(section)
        return found if isinstance(found, Mapping) else {}


def read(path: Path, kind: Format) -> Contents:
    """Raises ClientFileError."""
    try:
        text = bounded_text(path, MAX_BYTES[kind])
    except (FileNotFoundError, NotADirectoryError):
        if path.is_symlink():
            raise ClientFileError(
                f"{path} is a link to {path.readlink()}, which does not exist. Create that file, or remove the link."
            ) from None
        return Contents(path, None, {})
    return Contents(path, text, parsed(text, kind, str(path)))


def bounded_text(path: Path, limit: int) -> str:
    """The text of a file of at most `limit` bytes. Raises ClientFileError, and OSError if there is no file."""
    try:
        with open_regular(path) as file:
            return as_text(file.read(limit + 1), str(path), limit)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except NotRegularFileError as error:
        raise ClientFileError(f"{path} is a {error.kind}, not a regular file.") from None
    except OSError as error:
        raise ClientFileError(f"{path} cannot be read: {error.strerror}.") from None


def as_text(raw: bytes, name: str, limit: int) -> str:
    """Raises ClientFileError."""
    if len(raw) > limit:
        raise ClientFileError(f"{name} is larger than {limit} bytes.")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ClientFileError(f"{name} is not UTF-8 text.") from None


def parsed(text: str, kind: Format, name: str) -> Mapping[str, Any]:
    """The top-level mapping. Raises ClientFileError."""
    try:
        data = _PARSE[kind](text) if text.strip() else {}
    except (jsonc.JsoncError, tomllib.TOMLDecodeError) as error:
        raise ClientFileError(f"{name} is not valid {_NAMES[kind]}: {error}. Mend it first.") from None
    except ConfigError as error:
        problem = error.problems[0]
        raise ClientFileError(f"{name}, line {problem.line}: {problem.reason}. Mend it first.") from None
    except (YAMLError, ValueError, OverflowError, RecursionError):
        raise ClientFileError(f"{name} is not valid {_NAMES[kind]}. Mend it first.") from None
    if data is None:
        return {}
    if not isinstance(data, Mapping):
        raise ClientFileError(f"{name} is not a mapping of keys to values.")
    return data


def changed(text: str, kind: Format, section: str, key: str, value: Mapping[str, Any] | None) -> str:
    """The text with `section.key` set to the value, or removed if that is None; all else as it was.

    Raises:
        ClientFileError: the text is written in a way in which this cannot be done safely.
    """
    old = parsed(text, kind, "The file")
    body = old.get(section)
    if body is not None and not isinstance(body, Mapping):
        raise ClientFileError(f"`{section}` is not a mapping of keys to values. Mend it first.")
    entries = dict(body or {})
    if value is None and key not in entries:
        return text
    entries.pop(key, None)
    if value is not None:
        entries[key] = value
    try:
        new = _EDIT[kind](text, section, key, value)
        right = _without(parsed(new, kind, "The file"), section) == _without(old, section)
        right = right and (parsed(new, kind, "The file").get(section) or {}) == entries
    except (jsonc.JsoncError, toml_table.TomlError, EditError, ConfigError) as error:
        raise ClientFileError(f"The file cannot be edited safely: {error}.") from None
    if not right:
        raise ClientFileError(f"`{section}` is written in a form that cannot be edited safely; edit the file by hand.")
    return new


def _without(data: Mapping[str, Any], section: str) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key != section}


def _yaml_data(text: str) -> Any:
    root = compose(text, "")  # bounds the depth, and has the better errors
    if root is not None:
        _bound_aliases(root, {})
    yaml = YAML(typ="safe", pure=True)
    yaml.composer.warn_double_anchors = False
    return yaml.load(text)


def _bound_aliases(node: Node, known: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """The number of nodes and the depth with all aliases written out. Raises ValueError if that is too much."""
    if id(node) in known:
        return known[id(node)]
    known[id(node)] = (_MAX_NODES, 0)  # an alias of itself
    children = node.value if not isinstance(node, ScalarNode) else []
    flat = [part for child in children for part in (child if isinstance(child, tuple) else (child,))]
    sizes = [_bound_aliases(child, known) for child in flat]
    size = 1 + sum(one for one, _ in sizes)
    depth = 1 + max((one for _, one in sizes), default=0)
    if size > _MAX_NODES or depth > _MAX_DEPTH:
        raise ValueError("aliases that stand for too much")
    known[id(node)] = (size, depth)
    return size, depth


def _edit_json(text: str, section: str, key: str, value: Mapping[str, Any] | None) -> str:
    return jsonc.drop(text, section, key) if value is None else jsonc.put(text, section, key, value)


def _edit_toml(text: str, section: str, key: str, value: Mapping[str, Any] | None) -> str:
    return toml_table.drop(text, section, key) if value is None else toml_table.put(text, section, key, value)


def _edit_yaml(text: str, section: str, key: str, value: Mapping[str, Any] | None) -> str:
    if key in (parsed(text, "yaml", "The file").get(section) or {}):
        text = remove(text, compose(text, ""), section, key)
    return text if value is None else insert(text, compose(text, ""), section, key, value)


_NAMES: Mapping[Format, str] = {"json": "JSON", "toml": "TOML", "yaml": "YAML"}
_PARSE: Mapping[Format, Callable[[str], Any]] = {"json": jsonc.parse, "toml": tomllib.loads, "yaml": _yaml_data}
_EDIT: Mapping[Format, Callable[[str, str, str, Mapping[str, Any] | None], str]] = {
    "json": _edit_json,
    "toml": _edit_toml,
    "yaml": _edit_yaml,
}
