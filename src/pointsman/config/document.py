"""YAML text as plain data that still knows where each value was written."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from pointsman.config.errors import ConfigProblem
from pointsman.config.references import fill
from pointsman.config.tree import CORE, MERGE, NULL, child, compose, short

KeyPath = tuple[str | int, ...]  # ("servers", "time", "args", 0)

# Lists and mappings of text, where `8080` or `true` mean what was typed and not a number or a truth value.
_AS_WRITTEN = frozenset({"args", "env", "headers", "projects", "servers"})


class Document:
    """One file: its data with references filled in, the problems met so far, and the place of every key."""

    def __init__(self, text: str, file_name: str, environ: Mapping[str, str]) -> None:
        """Raises ConfigError where the text is no YAML at all; everything else is collected in `problems`."""
        self.file_name = file_name
        self.folder = Path(file_name).absolute().parent
        self.problems: list[ConfigProblem] = []
        self.unknown: set[KeyPath] = set()  # values that could not be made out; complaints about them would be noise
        self.filled: set[str] = set()  # texts that came, in part, from outside the file: they may be secrets
        self.environ = environ
        self._moved: dict[KeyPath, KeyPath] = {}
        self._built: dict[tuple[int, bool], Any] = {}
        self._open: set[int] = set()
        self.root: Node | None = compose(text, file_name)
        self.data: Any = {} if self.root is None else self._build(self.root, ())

    def complain(self, path: KeyPath, reason: str, hint: str | None = None, *, key: bool = False) -> None:
        """Add a problem at the value of `path`, or at its key."""
        line, column = self._place(self._written(path), key)
        self.problems.append(ConfigProblem(self.file_name, line, column, render(self._written(path)), reason, hint))

    def moved(self, to: KeyPath, origin: KeyPath) -> None:
        """Remember that what is now at `to` was written at `origin`."""
        self._moved[to] = origin

    def _written(self, path: KeyPath) -> KeyPath:
        for length in range(len(path), 0, -1):
            origin = self._moved.get(path[:length])
            if origin is not None:
                return origin + path[length:]
        return path

    def _place(self, path: KeyPath, key: bool) -> tuple[int, int]:
        """Where the longest part of `path` that was really written stands."""
        mark = self.root.start_mark if self.root is not None else None
        node = self.root
        for depth, step in enumerate(path):
            found = child(node, step)
            if found is None:
                break
            key_node, node = found
            wanted_key = key and depth == len(path) - 1
            mark = key_node.start_mark if wanted_key or not short(node) else node.start_mark
        return (1, 1) if mark is None else (mark.line + 1, mark.column + 1)

    def _build(self, node: Node, path: KeyPath) -> Any:
        as_written = len(path) > 1 and path[-2] in _AS_WRITTEN
        known = (id(node), as_written)
        if known in self._built:  # an alias: built once, however often it is used
            return self._built[known]
        if id(node) in self._open:
            self._give_up(node, path, "refers to itself")
            return None
        self._open.add(id(node))
        builders: dict[type[Node], Callable[[Any, KeyPath], Any]] = {
            ScalarNode: self._text if as_written else self._scalar,
            SequenceNode: self._sequence,
            MappingNode: self._mapping,
        }
        value = builders[type(node)](node, path)
        self._open.discard(id(node))
        self._built[known] = value
        return value

    def _sequence(self, node: SequenceNode, path: KeyPath) -> list[Any]:
        return [self._build(item, (*path, index)) for index, item in enumerate(node.value)]

    def _mapping(self, node: MappingNode, path: KeyPath) -> dict[str, Any]:
        own: dict[str, Any] = {}
        first: dict[str, int] = {}
        merged: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == MERGE:
                merged = {**self._merge(value_node, path), **merged}
                continue
            if not isinstance(key_node, ScalarNode):
                self._give_up(key_node, path, "a key must be text")
                continue
            key = _whole_characters(key_node.value)
            if key in own:
                self._add(key_node, (*path, key), f"is given twice; the first one is in line {first[key]}")
                continue
            first[key] = key_node.start_mark.line + 1
            own[key] = self._build(value_node, (*path, key))
        return {**merged, **own}

    def _merge(self, node: Node, path: KeyPath) -> dict[str, Any]:
        sources = node.value if isinstance(node, SequenceNode) else [node]
        merged: dict[str, Any] = {}
        for source in sources:
            if not isinstance(source, MappingNode):
                self._give_up(source, path, "`<<` takes a mapping, or a list of them")
                continue
            built = self._build(source, path)
            merged = {**(built or {}), **merged}  # of several sources, the first one that has a key wins
        return merged

    def _scalar(self, node: ScalarNode, path: KeyPath) -> Any:
        kind = str(node.tag).removeprefix(CORE)
        if kind == "null":
            return None
        if kind in _READ:
            try:
                return _READ[kind](node.value)
            except ValueError:
                return str(node.value)  # the model says what it wants instead
        return self._text(node, path)

    def _text(self, node: ScalarNode, path: KeyPath) -> str | None:
        tag = str(node.tag)
        if tag == NULL:
            return None
        if not tag.startswith(CORE) or tag == CORE + "binary":
            self._give_up(node, path, f"the tag `{tag.replace(CORE, '!!')}` is not supported")
            return None
        filled = fill(_whole_characters(node.value), self.environ, self.folder)
        if filled.changed:
            self.filled.add(filled.text)
        if "\0" in filled.text:  # no process, path or header could carry it
            filled.failures.append("holds a null character")
        for failure in filled.failures:
            self._give_up(node, path, failure)
        return filled.text

    def _give_up(self, node: Node, path: KeyPath, reason: str) -> None:
        self.unknown.add(path)
        self._add(node, path, reason)

    def _add(self, node: Node, path: KeyPath, reason: str) -> None:
        mark = node.start_mark
        self.problems.append(ConfigProblem(self.file_name, mark.line + 1, mark.column + 1, render(path), reason))


def render(path: KeyPath) -> str:
    """`servers.time.args[0]`; a key that could be misread stands in quotes."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += ("." if text else "") + (step if _PLAIN_KEY.fullmatch(step) else json.dumps(step))
    return text


_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+")


def _whole_characters(text: str) -> str:
    """JSON writes characters beyond U+FFFF as two escapes, which YAML takes for two characters."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _integer(text: str) -> int:
    digits = text.replace("_", "")
    return int(digits, 0) if digits.lstrip("+-")[:2].lower() in ("0x", "0o", "0b") else int(digits)


def _float(text: str) -> float:
    return float(text.lower().replace("_", "").replace(".inf", "inf").replace(".nan", "nan"))


_READ: Mapping[str, Callable[[str], Any]] = {
    "bool": lambda text: text.lower() in ("true", "yes", "on", "y"),
    "int": _integer,
    "float": _float,
}
