"""A YAML file as plain data: references expanded, the position of every value known."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from pointsman.config.errors import ConfigProblem
from pointsman.config.yaml.references import UNRESOLVED_URL, Expander, ReadsSecrets
from pointsman.config.yaml.tree import CORE, MERGE, NULL, child, compose_pasted, is_visible_scalar

KeyPath = tuple[str | int, ...]  # ("servers", "time", "args", 0)

MAX_PROBLEMS = 200

# Keys that clients have for the tools that a server may, or may not, offer.
TOOL_LISTS = (
    "enabled_tools",
    "includeTools",
    "tools",
    "available_tools",
    "disabled_tools",
    "excludeTools",
    "disabledTools",
)

# Lists and mappings of text, where `8080` and `true` are text and not a number or a boolean.
_AS_WRITTEN = frozenset(
    {"args", "env", "headers", "projects", "servers"}
    | {"command", "envs", "environment", "http_headers", *TOOL_LISTS}  # as clients write them
)


class Document:
    """One file: its data with references expanded, the problems found so far, and the position of every key."""

    def __init__(
        self,
        text: str,
        file_name: str,
        environ: Mapping[str, str],
        *,
        resolve_disabled: Callable[[str], bool] = lambda name: False,
        secrets: ReadsSecrets | None = None,
        read_secrets_of: Callable[[str], bool] = lambda name: True,
    ) -> None:
        """Raises ConfigError if the text is not YAML; all other problems are collected in `problems`.

        References of a disabled server are not resolved, unless `resolve_disabled` says so of its name. Commands and
        keyrings are asked only through `secrets`, and for a server only if `read_secrets_of` says so of its name.
        """
        self._resolve_disabled = resolve_disabled
        self._read_secrets_of = read_secrets_of
        self._reads_secrets = True  # not in the entry of a server whose secrets are not read
        self._in_disabled = False  # the entry of a server that is not used is being built
        self.file_name = file_name
        self.folder = Path(file_name).absolute().parent
        self.problems: list[ConfigProblem] = []
        self.notes: list[ConfigProblem] = []  # what is accepted, but not as it was written
        self.unresolved: set[KeyPath] = set()  # values already reported as unreadable: further errors would be noise
        self.external_texts: set[str] = set()  # texts that came, in part, from outside the file: may be secrets
        self.variables: set[str] = set()  # of the environment, that references name
        self.not_set: dict[str, str] = {}  # the reason of a problem -> the variable that is not set
        self.empty: list[tuple[KeyPath, str]] = []  # where `${NAME:-}` is nothing, and the variable
        self.secrets: dict[KeyPath, bool] = {}  # where `${cmd:...}` or `${keyring:...}` is; True: it was not read
        self.environ = environ
        self._expander = {
            True: Expander(environ, self.folder, secrets),
            False: Expander(environ, self.folder),
        }
        self._origins: dict[KeyPath, KeyPath] = {}
        self._built: dict[tuple[int, bool, bool, bool], Any] = {}
        self._open: set[int] = set()
        self.root: Node | None = compose_pasted(text, file_name)
        self.data: Any = {} if self.root is None else self._build(self.root, ())

    def add_problem(self, path: KeyPath, reason: str, hint: str | None = None, *, key: bool = False) -> None:
        """Add a problem at the value of `path`, or at its key. Beyond MAX_PROBLEMS, further ones are left out."""
        if len(self.problems) < MAX_PROBLEMS:  # to find each position takes time in proportion to the file's size
            self.problems.append(self._at(path, reason, hint, key))

    def reject(self, path: KeyPath, reason: str, *, key: bool = False) -> None:
        """Add a problem at `path`; further errors about its value are then not reported."""
        self.unresolved.add(self.origin(path))
        self.add_problem(path, reason, key=key)

    def add_note(self, path: KeyPath, text: str) -> None:
        """Add a note at the key of `path`."""
        self.notes.append(self._at(path, text, None, key=True))

    def is_unresolved(self, path: KeyPath) -> bool:
        """Whether the value at `path`, or one around it, has been reported as unreadable."""
        written = self.origin(path)
        return any(written[:length] in self.unresolved for length in range(1, len(written) + 1))

    def _at(self, path: KeyPath, reason: str, hint: str | None, key: bool) -> ConfigProblem:
        written = self.origin(path)
        line, column = self._position(written, key)
        return ConfigProblem(self.file_name, line, column, render(written), reason, hint)

    def record_move(self, to: KeyPath, origin: KeyPath) -> None:
        """Remember that what is now at `to` was written at `origin`."""
        self._origins[to] = origin

    def origin(self, path: KeyPath) -> KeyPath:
        """Where the value that is now at `path` was written."""
        for length in range(len(path), 0, -1):
            origin = self._origins.get(path[:length])
            if origin is not None:
                return origin + path[length:]
        return path

    def _position(self, path: KeyPath, key: bool) -> tuple[int, int]:
        """The line and column of the longest part of `path` that the file contains."""
        mark = self.root.start_mark if self.root is not None else None
        node = self.root
        for depth, step in enumerate(path):
            found = child(node, step)
            if found is None:
                break
            key_node, node = found
            at_key = (key and depth == len(path) - 1) or not is_visible_scalar(node)
            mark = key_node.start_mark if at_key else node.start_mark
        return (1, 1) if mark is None else (mark.line + 1, mark.column + 1)

    def _build(self, node: Node, path: KeyPath) -> Any:
        as_written = len(path) > 1 and path[-2] in _AS_WRITTEN and not _is_key_of_entry(path)
        identity = (id(node), as_written, self._in_disabled, self._reads_secrets)
        if identity in self._built:  # an alias: built once, however often it is used
            return self._built[identity]
        if id(node) in self._open:
            self._reject(node, path, "is an alias of itself; write the value out")
            return None
        self._open.add(id(node))
        builders: dict[type[Node], Callable[[Any, KeyPath], Any]] = {
            ScalarNode: self._text if as_written else self._scalar,
            SequenceNode: self._sequence,
            MappingNode: self._mapping,
        }
        value = builders[type(node)](node, path)
        self._open.discard(id(node))
        self._built[identity] = value
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
                self._reject(key_node, path, "a key must be text")
                continue
            key = _whole_characters(key_node.value)
            if key in own:
                self._add(key_node, (*path, key), f"is a duplicate of the key in line {first[key]}; keep one of them")
                continue
            first[key] = key_node.start_mark.line + 1
            if path in _SERVERS:
                self._in_disabled = _is_disabled(value_node) and not self._resolve_disabled(key)
                self._reads_secrets = self._read_secrets_of(key)
            value = self._build(value_node, (*path, key))
            if path in _SERVERS:
                self._in_disabled, self._reads_secrets = False, True
            if value is not _LEFT_OUT:
                own[key] = value
        return {**merged, **own}

    def _merge(self, node: Node, path: KeyPath) -> dict[str, Any]:
        sources = node.value if isinstance(node, SequenceNode) else [node]
        merged: dict[str, Any] = {}
        for source in sources:
            if not isinstance(source, MappingNode):
                self._reject(source, path, "`<<` takes a mapping or a list of mappings")
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
                return str(node.value)  # the model reports what it expects
        return self._text(node, path)

    def _text(self, node: ScalarNode, path: KeyPath) -> Any:
        tag = str(node.tag)
        if tag == NULL:
            return None
        if not tag.startswith(CORE) or tag == CORE + "binary":
            self._reject(node, path, f"the tag `{tag.replace(CORE, '!!')}` is not supported")
            return None
        if self._in_disabled and "${" in node.value:
            return _unresolved(_whole_characters(node.value), path)
        key = next((step for step in reversed(path) if isinstance(step, str)), "")
        expanded = self._expander[self._reads_secrets].expand(_whole_characters(node.value), key)
        if expanded.external:
            self.external_texts.add(expanded.text)
            self.variables |= expanded.variables
            self.not_set |= expanded.not_set
            self.empty += [(path, name) for name in expanded.empty]
        if expanded.secrets:
            self.secrets[path] = expanded.unread
        if "\0" in expanded.text:  # no process, path or header can carry it
            expanded.failures.append("contains a null character")
        for failure in expanded.failures:
            self._reject(node, path, failure)
        return expanded.text

    def _reject(self, node: Node, path: KeyPath, reason: str) -> None:
        self.unresolved.add(path)
        self._add(node, path, reason)

    def _add(self, node: Node, path: KeyPath, reason: str) -> None:
        mark = node.start_mark
        self.problems.append(ConfigProblem(self.file_name, mark.line + 1, mark.column + 1, render(path), reason))


_SERVERS = (("servers",), ("mcpServers",))
_OFF = ("false", "no", "off", "n", "f", "0")  # as the model reads them
_DISABLED = {"enabled": _OFF, "isActive": _OFF, "disabled": ("true", "yes", "on", "y")}
_LEFT_OUT = object()  # a value that counts as not written


def _is_disabled(node: Node) -> bool:
    """Whether the entry of a server says so, in our words or in a client's."""
    for key, words in _DISABLED.items():
        found = child(node, key)
        if found is not None and isinstance(found[1], ScalarNode) and found[1].value.lower() in words:
            return True
    return False


def _unresolved(text: str, path: KeyPath) -> Any:
    """What stands for a text with references in the entry of a disabled server: enough for the entry to be valid."""
    if len(path) == 3 and path[2] == "command":
        return text
    if len(path) == 3 and str(path[2]).lower().endswith(("url", "uri")):
        return UNRESOLVED_URL
    return text if len(path) > 2 and isinstance(path[-1], int) else _LEFT_OUT


def _is_key_of_entry(path: KeyPath) -> bool:
    """Whether `path` is like `servers.env.enabled`, where `env` is an id and not the key."""
    return len(path) == 3 and path[0] in ("servers", "mcpServers", "projects", "tokens")


def render(path: KeyPath) -> str:
    """`servers.time.args[0]`; a key that could be misread is quoted."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += ("." if text else "") + (step if _PLAIN_KEY.fullmatch(step) else json.dumps(step))
    return text


_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+")


def _whole_characters(text: str) -> str:
    """Join surrogate pairs: JSON escapes a character beyond U+FFFF as two, which YAML reads as two characters."""
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
