"""One line on stderr for each call, which the gateway keeps: what was asked, what came of it, how long it took."""

from __future__ import annotations

import json
import logging
import unicodedata

from pointsman.archive.tools.base import Json

logger = logging.getLogger("pointsman.archive")

_ASKED = ("query", "pattern", "path", "section", "document", "doc_id", "index_name", "collection")
_COUNTED = ("results", "matches", "documents", "collections", "related", "outline", "sections", "dependencies")
_LONGEST_S = {"context_search": 5.0, "read_file": 0.5, "grep_codebase": 3.0}
_LONGEST_WITH_DEPENDENCIES_S = 2.0
_SHOWN_CHARS = 120


def log_call(tool: str, arguments: Json, result: Json | None, seconds: float, size: int) -> None:
    """`result`: None where the tool failed. `size`: of the answer's text, in bytes."""
    asked = next((f"{name}={_shown(arguments[name])}" for name in _ASKED if arguments.get(name) is not None), "")
    count = "-" if result is None else next((len(result[name]) for name in _COUNTED if _is_list(result, name)), 1)
    ending = "failed" if result is None else "ok"
    logger.info("%s %s %s results=%s ms=%.1f bytes=%d", tool, asked, ending, count, 1000 * seconds, size)
    longest_s = longest(tool, arguments)
    if longest_s is not None and seconds > longest_s:
        logger.warning("%s took %.1f s, more than the %.1f s it should take at most", tool, seconds, longest_s)


def longest(tool: str, arguments: Json) -> float | None:
    """What a call may take at most before it is worth a warning."""
    if tool == "read_file" and arguments.get("includeDeps") is True:
        return _LONGEST_WITH_DEPENDENCIES_S
    return _LONGEST_S.get(tool)


def _is_list(result: Json, name: str) -> bool:
    return isinstance(result.get(name), list)


def _shown(value: object) -> str:
    """Short, and nothing in it that could pass for another line or move a cursor."""
    text = str(value)
    clean = "".join("�" if unicodedata.category(char).startswith("C") else char for char in text[:_SHOWN_CHARS])
    return json.dumps(clean + ("…" if len(text) > _SHOWN_CHARS else ""), ensure_ascii=False)
