"""Calls of the two code tools as a client sees them, for the tests of the contract."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pointsman.archive.archive import Archive
from pointsman.archive.tools.base import Call, ToolError
from pointsman.archive.tools.codebase import GREP_CODEBASE, READ_FILE
from pointsman.core.model import Json

TOOLS = {tool.name: tool for tool in (READ_FILE, GREP_CODEBASE)}


@dataclass(frozen=True)
class Answer:
    is_error: bool
    content: Json  # of the text block, which is JSON in all answers of these tools


CallTool = Callable[[str, Mapping[str, Any]], Answer]


def calling(archive: Archive) -> CallTool:
    def call(name: str, arguments: Mapping[str, Any]) -> Answer:
        try:
            return Answer(False, json.loads(json.dumps(TOOLS[name].run(archive, dict(arguments), Call("somebody")))))
        except ToolError as failure:
            return Answer(True, json.loads(failure.text))

    return call
