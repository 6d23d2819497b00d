"""YAML text as a tree of nodes with their positions; syntax errors in plain words."""

from __future__ import annotations

import re

from ruamel.yaml import YAML
from ruamel.yaml.composer import MaxDepthExceededError
from ruamel.yaml.error import MarkedYAMLError, StringMark
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from pointsman.config.errors import ConfigError, ConfigProblem

CORE = "tag:yaml.org,2002:"
MERGE = CORE + "merge"
NULL = CORE + "null"

_MAX_DEPTH = 32
_NO_CHARACTER = re.compile(r"\\U(?!000|0010)[0-9A-Fa-f]{8}")


def compose(text: str, file_name: str) -> Node | None:
    """The tree of the text; None if it has no content but comments.

    Raises:
        ConfigError: it is not YAML; its one problem has the position.
    """
    yaml = YAML(typ="safe", pure=True)
    yaml.max_depth = _MAX_DEPTH
    yaml.composer.warn_double_anchors = False  # legal, so no warning on stderr
    try:
        root: Node | None = yaml.compose(text)
    except MarkedYAMLError as error:
        raise ConfigError([_syntax_problem(error, text, file_name)]) from None
    except ReaderError as error:
        reason = f"the character U+{error.character:04X} is not allowed in YAML"
        raise ConfigError([_problem_at(text, error.position, reason, file_name)]) from None
    except (ValueError, OverflowError):  # what ruamel.yaml raises for \UFFFFFFFF
        escape = _NO_CHARACTER.search(text)
        reason = "this escape is not a Unicode character"
        raise ConfigError([_problem_at(text, escape.start() if escape else 0, reason, file_name)]) from None
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


def _syntax_problem(error: MarkedYAMLError, text: str, file_name: str) -> ConfigProblem:
    mark: StringMark | None = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
    return ConfigProblem(file_name, line, column, "", _syntax_reason(error, text, mark))


def _syntax_reason(error: MarkedYAMLError, text: str, mark: StringMark | None) -> str:
    problem = str(error.problem or error.context or "this is not YAML")
    if isinstance(error, MaxDepthExceededError):
        return f"nested deeper than {_MAX_DEPTH} levels"
    if "another document" in problem:
        return "a second document starts here (`---`); only one is allowed"
    if "'\\t'" in problem:
        return "a tab cannot indent YAML; use spaces"
    if mark is not None and text[max(mark.index - 1, 0) : mark.index + 1] == "${":
        return 'quote a value with ${...} inside braces or brackets: "${NAME}"'
    if problem == "mapping values are not allowed here":
        return "unexpected `:`; quote a value that contains `: `, or check the indentation"
    if bad_start := re.fullmatch(r"found character (.+) that cannot start any token", problem):
        return f"a value cannot start with {bad_start[1]}; quote it"
    return problem.replace("'<stream end>'", "the end of the file").replace("end of stream", "end of the file")
