"""Every call that the pages on the archive show is made for real, in the order of the page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pointsman.archive.tools.registry import TOOLS
from tests.archive.harness import opened

PROJECT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```json\n(.*?)^```", re.DOTALL | re.MULTILINE)

SAME_AGAIN = {"archive-indexes"}  # no times and no figures of the machine: their answers are shown to the letter

Json = dict[str, Any]


def calls(page: Path) -> Iterator[tuple[Json, Json | None]]:
    """The calls of a page, each with the answer that is shown right after it, if one is."""
    blocks: list[Any] = [json.loads(text) for text in BLOCK.findall(page.read_text(encoding="utf-8"))]
    for block, following in pairwise((*blocks, None)):
        if isinstance(block, dict) and "toolKey" in block:
            yield block, following if isinstance(following, dict) and "toolKey" not in following else None


PAGES = [page for page in sorted((PROJECT / "docs").rglob("archive*.md")) if any(calls(page))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
async def test_every_call_on_a_page_succeeds_and_answers_with_what_is_shown(page: Path, tmp_path: Path) -> None:
    async with opened("gateway", tmp_path, roots={"pointsman": PROJECT}) as archive:
        for call, shown in calls(page):
            name = call["toolKey"].removeprefix("archive:")
            answer = await archive.result(name, **call.get("arguments", {}))
            assert shown is None or shown.keys() <= answer.keys(), (call, answer)
            assert shown is None or page.stem not in SAME_AGAIN or shown == answer
            assert list(_found(shown)) in ([], list(_found(answer))), call


def _found(answer: Any) -> Iterator[str]:
    """Whose passages an answer of the search tools holds: with vectors or without, they must be those shown."""
    if isinstance(answer, list):
        for each in answer:
            yield from _found(each)
    elif isinstance(answer, dict) and "documentId" in answer:
        yield answer["documentId"]
    elif isinstance(answer, dict):
        yield from _found(answer.get("results"))


def test_every_tool_is_shown_with_a_call() -> None:
    shown = {call["toolKey"] for page in PAGES for call, _ in calls(page)}
    assert shown >= {f"archive:{tool.name}" for tool in TOOLS}
