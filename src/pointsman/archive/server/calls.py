"""One call of one tool, from its rate limit to an answer, whatever happens on the way. Knows nothing of MCP."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass

from pointsman.archive.archive import Archive
from pointsman.archive.server.call_log import log_call
from pointsman.archive.server.rate_limits import RateLimits
from pointsman.archive.store.errors import StoreError
from pointsman.archive.tools.base import ArchiveTool, Call, Json, ToolError, store_code

# The gateway takes 16 MiB from a server, and the text holds all of the result once more, escaped.
LARGEST_TEXT_BYTES = 3_000_000
LARGEST_RESULT_BYTES = 14_000_000

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Answer:
    text: str
    structured: Json
    failed: bool


class Calling:
    """Thread-safe: many calls at once, each in a thread of its own."""

    def __init__(self, archive: Archive, tools: Mapping[str, ArchiveTool], limits: RateLimits) -> None:
        self.tools = tools
        self._archive = archive
        self._limits = limits

    def close(self) -> None:
        self._archive.close()

    def call(self, name: str, arguments: Json, caller: str = "") -> Answer:
        """Never raises: what goes wrong is an answer, too."""
        began = time.monotonic()
        result: Json | None = None
        try:
            self._limits.count(name, caller)
            result = self.tools[name].run(self._archive, arguments, Call(caller))
            answer = _answer(result)
        except ToolError as failure:
            answer = _failed(name, failure)
        except StoreError as error:
            answer = _failed(name, ToolError(str(error), code=store_code(error)))
        except Exception:
            logger.exception("%s failed", name)
            said = f"{name} failed for a reason of its own; the archive's log has it. Try again, or ask another way."
            answer = _failed(name, ToolError(said, code="internal_error"))
        seconds, size = time.monotonic() - began, len(answer.text.encode(errors="replace"))
        log_call(name, arguments, None if answer.failed else result, seconds, size)
        return answer


def _failed(name: str, failure: ToolError) -> Answer:
    failure.tool = name
    return Answer(failure.text, failure.structured, failed=True)


def _answer(result: Json) -> Answer:
    """Raises ToolError: it is larger than any client takes."""
    text = json.dumps(result, ensure_ascii=False, allow_nan=False)
    try:
        size = len(text.encode())
    except UnicodeEncodeError:  # half a character, which no client could read
        whole = text.encode(errors="replace")
        text, result, size = whole.decode(), json.loads(whole), len(whole)
    if size > LARGEST_RESULT_BYTES:
        raise ToolError(
            "The result is too large.",
            code="result_too_large",
            help=f"It has {size} bytes, and {LARGEST_RESULT_BYTES} are the most. Ask for less.",
        )
    if size > LARGEST_TEXT_BYTES:
        text = f"The result has {size} bytes and stands in structuredContent alone."
    return Answer(text, result, failed=False)
