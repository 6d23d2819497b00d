"""YAML text as a tree of nodes with their positions. Blocks of JSON are read, too, with their comments."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from pointsman.config.errors import ConfigError, ConfigProblem
from pointsman.config.yaml.syntax import TYPOGRAPHIC_QUOTES, explain_syntax, without_quotes

CORE = "tag:yaml.org,2002:"
MERGE = CORE + "merge"
NULL = CORE + "null"

_MAX_DEPTH = 32
_MAX_BLOCKS = 8  # of JSON between YAML keys; each costs another reading of the file
_MAX_STRANGE = 20
_NO_CHARACTER = re.compile(r"\\U(?!000|0010)[0-9A-Fa-f]{8}")


def compose_pasted(text: str, file_name: str) -> Node | None:
    """`compose` for our own file, in which people paste blocks of JSON: with comments, or between YAML keys.

    Raises:
        ConfigError: it is not YAML, or has quotes and spaces that only look like some.
    """
    root = compose(_blank_json_comments(text), file_name, blocks=True)
    strange = list(islice(_strange_characters(root, file_name), _MAX_STRANGE))
    if strange:
        raise ConfigError(strange)
    return root


def compose(text: str, file_name: str, *, blocks: bool = False) -> Node | None:
    """The tree of the text; None if it has no content but comments. With `blocks`, JSON may stand between YAML keys.

    Raises:
        ConfigError: it is not YAML; its one problem has the position.
    """
    try:
        root = _compose_with_blocks(text) if blocks else _composed(text)
    except MarkedYAMLError as error:
        raise ConfigError([explain_syntax(error, text, file_name, _MAX_DEPTH)]) from None
    except ReaderError as error:
        reason = f"the character U+{error.character:04X} is not allowed in YAML"
        raise ConfigError([_problem_at(text, error.position, reason, file_name)]) from None
    except (ValueError, OverflowError):  # what ruamel.yaml raises for \UFFFFFFFF
        escape = _NO_CHARACTER.search(text)
        reason = "this escape is not a Unicode character"
        raise ConfigError([_problem_at(text, escape.start() if escape else 0, reason, file_name)]) from None
    return root


def _composed(text: str) -> Node | None:
    yaml = YAML(typ="safe", pure=True)
    yaml.max_depth = _MAX_DEPTH
    yaml.composer.warn_double_anchors = False  # legal, so no warning on stderr
    root: Node | None = yaml.compose(text)
    return root


def child(node: Node | None, step: str | int) -> tuple[Node, Node] | None:
    """The nodes of the key and of the value one step down. A list's item counts as its own key."""
    if isinstance(node, SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step], node.value[step]
    if not isinstance(node, MappingNode):
        return None
    merged: list[Node] = []
    for key_node, value_node in node.value:
        if key_node.tag == MERGE:
            merged += value_node.value if isinstance(value_node, SequenceNode) else [value_node]
        elif isinstance(key_node, ScalarNode) and key_node.value == step:
            return key_node, value_node
    return next((found for source in merged if (found := child(source, step))), None)


def is_visible_scalar(node: Node) -> bool:
    """Whether an error should point at the value itself rather than at its key."""
    return isinstance(node, ScalarNode) and node.end_mark.index > node.start_mark.index


def _problem_at(text: str, index: int, reason: str, file_name: str) -> ConfigProblem:
    line_start = text.rfind("\n", 0, index) + 1
    return ConfigProblem(file_name, text.count("\n", 0, index) + 1, index - line_start + 1, "", reason)


_COMMENT = r"//[^\n]*+|/\*(?:[^*]++|\*(?!/))*+\*/"
_STRING = r'"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"?'
# A JSON file starts with a brace and a quoted key, perhaps with comments before them.
_JSON_FILE = re.compile(rf'(?:\s++|{_COMMENT})*+\{{(?:\s++|{_COMMENT})*+"')
_STRING_OR_COMMENT = re.compile(rf"({_STRING})|(?<![:\w])(?:{_COMMENT})")
_STRING_OR_BRACE = re.compile(rf"{_STRING}|[{{}}]")
_LINE_WITH_BRACE = re.compile(r"^\{", re.MULTILINE)
_NOT_A_BREAK = re.compile("[^\r\n\x85\u2028\u2029]")


def _blank(text: str) -> str:
    """Spaces in the place of the text, so that what follows keeps its position."""
    return _NOT_A_BREAK.sub(" ", text)


def _blank_json_comments(text: str) -> str:
    if "/" not in text or _JSON_FILE.match(text) is None:
        return text
    return _STRING_OR_COMMENT.sub(lambda match: match[0] if match[1] else _blank(match[0]), text)


def _compose_with_blocks(text: str) -> Node | None:
    """The tree of YAML, in which blocks of JSON may stand between the keys, such as a pasted `{"mcpServers": ...}`."""
    try:
        return _composed(text)
    except MarkedYAMLError:
        ranges = list(islice(_json_blocks(text), _MAX_BLOCKS + 1))
        root = _compose_rest(text, ranges) if len(ranges) <= _MAX_BLOCKS else None
        if root is None:  # the blocks are not the reason why this is not YAML
            raise
    for start, end in ranges:
        block = _composed(_blank(text[:start]) + _blank_json_comments(text[start:end]))
        pairs = block.value if isinstance(block, MappingNode) else []
        root.value = sorted([*root.value, *pairs], key=lambda pair: pair[0].start_mark.index)
    return root


def _compose_rest(text: str, ranges: Sequence[tuple[int, int]]) -> MappingNode | None:
    """The tree of the keys around the blocks, perhaps empty; None if there are no blocks, or the keys are not YAML."""
    rest, position = "", 0
    for start, end in ranges:
        rest += text[position:start] + _blank(text[start:end])
        position = end
    try:
        root = _composed(rest + text[position:])
        if root is None and len(ranges) > 1:  # nothing but blocks
            root = _composed(_blank(text[: ranges[0][0]]) + "{}")
    except MarkedYAMLError:
        return None
    return root if ranges and isinstance(root, MappingNode) else None


def _json_blocks(text: str) -> Iterator[tuple[int, int]]:
    """The ranges from a brace at the start of a line to the brace that closes it, or to the end of the text."""
    position = 0
    while start := _LINE_WITH_BRACE.search(text, position):
        if text[position : start.start()].rstrip().endswith(":"):
            return  # the value of a key: it only lacks indentation
        depth = 0
        for mark in _STRING_OR_BRACE.finditer(text, start.start()):
            depth += {"{": 1, "}": -1}.get(mark[0], 0)
            if depth == 0:
                break
        else:
            yield start.start(), len(text)
            return
        position = mark.end()
        yield start.start(), position


_INVISIBLE = ("\u00a0", "\u200b", "\u2007", "\u202f", "\ufeff")
_FREE_TEXTS = frozenset({"name", "description"})  # where such a quote may be meant


def _strange_characters(root: Node | None, file_name: str) -> Iterator[ConfigProblem]:
    """What a word processor or a web page turned into another character: valid YAML, but never meant."""
    waiting, seen = [(root, "")] if root is not None else [], set()
    while waiting:
        node, key = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, MappingNode):
            for key_node, value_node in reversed(node.value):
                name = key_node.value if isinstance(key_node, ScalarNode) else ""
                waiting += [(value_node, name), (key_node, "")]
        elif isinstance(node, SequenceNode):
            waiting += [(item, key) for item in reversed(node.value)]
        elif isinstance(node, ScalarNode) and node.style is None and key not in _FREE_TEXTS:
            reason = _strange(node.value)
            if reason is not None:
                mark = node.start_mark
                yield ConfigProblem(file_name, mark.line + 1, mark.column + 1, "", reason)


def _strange(text: str) -> str | None:
    if text.startswith(_INVISIBLE):
        name = f"U+{ord(text[0]):04X}"
        return f"this line starts with a character that only looks like a space ({name}); type the spaces anew"
    if text.startswith(TYPOGRAPHIC_QUOTES) or text.endswith(("\u201c", "\u201d")):
        return f"typographic quotes do not quote in YAML; write {without_quotes(text)}"
    return None
