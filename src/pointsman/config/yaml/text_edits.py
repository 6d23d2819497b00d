"""Inserts, sets and removes single entries in the text of a YAML file; every other character stays as it was.

A round trip through a YAML library would reflow lists, quotes, indentation and comments.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from pointsman.config.yaml.tree import CORE, NULL, child, compose

NOT_EDITABLE = "`{}` is written in a form that Pointsman cannot edit safely; edit the file by hand"
_STEP = "  "
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./-]*")

Value = bool | str | None | Sequence[str] | Mapping[str, Any]


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


def put(text: str, root: Node | None, keys: Sequence[str], value: Value) -> str:
    """Set the value at `keys`; all but the last two of them have to exist. `root` is the tree of the text."""
    newline = "\r\n" if "\r\n" in text else "\n"
    place = _find_parent(text, root, keys[:-1])
    if place is None and len(keys) > 2:
        return put(text, root, keys[:-1], {keys[-1]: value})
    if place is None:
        return insert_value(text, root, keys, value, newline)
    key, body = keys[-1], place.body
    line = f"{_scalar(key)}: {_inline(value)}{newline}"
    if _empty(body):
        if place.in_flow:
            return _replace(text, body, json.dumps({key: value}, ensure_ascii=False))
        return _open_section(text, place.heading, body, " " * (place.heading.start_mark.column + len(_STEP)) + line)
    if not isinstance(body, MappingNode):
        raise EditError(NOT_EDITABLE.format(".".join(keys)))
    for own_key, own_value in body.value:
        if own_key.value == key:
            quoted = isinstance(value, str) and own_value.style == '"'
            new = json.dumps(value, ensure_ascii=False) if quoted else _inline(value)
            return _replace_value(text, own_key, own_value, new)
    if body.flow_style:
        return _insert_in_flow(text, body, key, value, newline)
    last = body.value[-1][0].start_mark
    end = _end_of_entry(text, last.index, last.column, place.end)
    gap = "" if text[:end].endswith("\n") else newline
    return f"{text[:end]}{gap}{' ' * body.value[0][0].start_mark.column}{line}{text[end:]}"


def insert_value(text: str, root: Node | None, keys: Sequence[str], value: Value, newline: str) -> str:
    """Add a section with one value."""
    if len(keys) != 2:
        raise EditError(NOT_EDITABLE.format(".".join(keys)))
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
    if isinstance(value, SequenceNode):
        return _replace_list(text, key, value, new)
    if not isinstance(value, ScalarNode) or value.style in ("|", ">"):
        raise EditError(NOT_EDITABLE.format(key.value))
    if value.end_mark.index > value.start_mark.index:
        return _replace(text, value, new)
    colon = text.index(":", key.end_mark.index) + 1
    return f"{text[:colon]} {new}{text[colon:]}"


def _replace_list(text: str, key: Node, value: SequenceNode, new: str) -> str:
    """A list in brackets stays on its line; one with a line for each item gets brackets, if it has no comments."""
    if value.flow_style:
        return _replace(text, value, new)
    colon = text.index(":", key.end_mark.index) + 1
    last = value.value[-1] if value.value else None
    if not isinstance(last, ScalarNode) or last.style in ("|", ">") or "#" in text[colon : last.end_mark.index]:
        raise EditError(NOT_EDITABLE.format(key.value))
    return f"{text[:colon]} {new}{text[last.end_mark.index :]}"


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
    lines = [f"{' ' * indent}{_scalar(key)}:{'' if value else ' {}'}"]
    lines += [f"{' ' * indent}{_STEP}{_scalar(name)}: {_inline(item)}" for name, item in value.items()]
    return newline.join(lines) + newline


def _inline(value: Any) -> str:
    if isinstance(value, str):
        return _scalar(value)
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_scalar(key)}: {_inline(item)}' for key, item in value.items())}}}"
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
