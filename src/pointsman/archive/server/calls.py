"""One tool call, from its rate limit to its answer and its log line. Independent of MCP."""

from __future__ import annotations

import json
import logging
import time
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass

from pointsman.archive.archive import Archive
from pointsman.archive.server.rate_limits import RateLimits
from pointsman.archive.store.errors import StoreError
from pointsman.archive.tools.base import ArchiveTool, Call, ToolError, store_code, store_help
from pointsman.core.model import Json

# The gateway accepts 16 MiB from a server, and the text repeats the whole result, escaped.
MAX_TEXT_BYTES = 3_000_000
MAX_RESULT_BYTES = 14_000_000

_LOGGED_ARGUMENTS = ("query", "pattern", "path", "section", "document", "doc_id", "index_name", "collection")
_COUNTED_LISTS = ("results", "matches", "documents", "collections", "related", "outline", "sections", "dependencies")
_SLOW_S = {"context_search": 5.0, "read_file": 0.5, "grep_codebase": 3.0}
_SLOW_WITH_DEPENDENCIES_S = 2.0
_LOGGED_CHARS = 120

logger = logging.getLogger("pointsman.archive")


@dataclass(frozen=True, slots=True)
class Answer:
    text: str
    structured: Json
    failed: bool


class ToolRunner:
    """Runs tools over one archive. Thread-safe: concurrent calls each run in their own thread."""

    def __init__(self, archive: Archive, tools: Mapping[str, ArchiveTool], limits: RateLimits) -> None:
        self.tools = tools
        self._archive = archive
        self._limits = limits

    def close(self) -> None:
        self._archive.close()
        self._limits.close()

    def call(self, name: str, arguments: Json, caller: str = "") -> Answer:
        """Never raises: a failure becomes an answer."""
        began = time.monotonic()
        result: Json | None = None
        try:
            self._limits.count(name, caller)
            result = self.tools[name].run(self._archive, arguments, Call(caller))
            answer = _answer(result)
        except ToolError as failure:
            answer = _failed(name, failure)
        except StoreError as error:
            answer = _failed(name, ToolError(str(error), code=store_code(error), help=store_help(error)))
        except Exception:
            logger.exception("%s failed", name)
            message = f"{name} failed unexpectedly; see the archive's log. Try again, or with other arguments."
            answer = _failed(name, ToolError(message, code="internal_error"))
        seconds, size = time.monotonic() - began, len(answer.text.encode(errors="replace"))
        log_call(name, arguments, None if answer.failed else result, seconds, size)
        return answer


def _failed(name: str, failure: ToolError) -> Answer:
    failure.tool = name
    return Answer(failure.text, failure.structured, failed=True)


def _answer(result: Json) -> Answer:
    """Raises ToolError: the result is larger than the gateway accepts."""
    text = json.dumps(result, ensure_ascii=False, allow_nan=False)
    try:
        size = len(text.encode())
    except UnicodeEncodeError:  # an unpaired surrogate, which no client could read
        replaced = text.encode(errors="replace")
        text, result, size = replaced.decode(), json.loads(replaced), len(replaced)
    if size > MAX_RESULT_BYTES:
        raise ToolError(
            "The result is too large.",
            code="result_too_large",
            help=f"It has {size} bytes; the limit is {MAX_RESULT_BYTES}. Narrow the request.",
        )
    if size > MAX_TEXT_BYTES:
        text = f"The result has {size} bytes and is in structuredContent only."
    return Answer(text, result, failed=False)


def log_call(tool: str, arguments: Json, result: Json | None, seconds: float, size: int) -> None:
    """Write one line to stderr, which the gateway keeps.

    `result`: None if the tool failed. `size`: of the answer's text, in bytes.
    """
    argument = next(
        (f"{name}={_shown(arguments[name])}" for name in _LOGGED_ARGUMENTS if arguments.get(name) is not None), ""
    )
    count = "-" if result is None else next((len(result[name]) for name in _COUNTED_LISTS if _is_list(result, name)), 1)
    outcome = "failed" if result is None else "ok"
    logger.info("%s %s %s results=%s ms=%.1f bytes=%d", tool, argument, outcome, count, 1000 * seconds, size)
    slow_s = _slow_after(tool, arguments)
    if slow_s is not None and seconds > slow_s:
        logger.warning("%s took %.1f s; expected at most %.1f s", tool, seconds, slow_s)


def _slow_after(tool: str, arguments: Json) -> float | None:
    """The duration in seconds from which a call is logged as slow."""
    if tool == "read_file" and arguments.get("includeDeps") is True:
        return _SLOW_WITH_DEPENDENCIES_S
    return _SLOW_S.get(tool)


def _is_list(result: Json, name: str) -> bool:
    return isinstance(result.get(name), list)


def _shown(value: object) -> str:
    """Shorten; replace control characters, which could forge a log line or move the cursor."""
    text = str(value)
    clean = "".join("\ufffd" if unicodedata.category(char).startswith("C") else char for char in text[:_LOGGED_CHARS])
    return json.dumps(clean + ("…" if len(text) > _LOGGED_CHARS else ""), ensure_ascii=False)
