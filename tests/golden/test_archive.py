"""The archive's own tools, found by what people ask of them: the right one comes first."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from pointsman.archive.tools.base import ArchiveTool
from pointsman.archive.tools.registry import TOOLS
from pointsman.catalog.service import ToolCatalogService
from pointsman.providers.bm25 import BM25SearchProvider
from tests.catalog.sources import SmallServer, catalog_of
from tests.golden.golden import ME, keys

FIRST = 0.85  # the share of requests whose right tool must come first

both_ways = pytest.mark.parametrize("embeddings", [False, True], ids=["words", "embeddings"])


def requests() -> dict[str, str]:
    """The right tool for each request, as far as the tools are there."""
    there = {tool.name for tool in TOOLS}
    entries: list[dict[str, str]] = YAML(typ="safe").load(Path(__file__).with_name("archive_requests.yaml"))
    return {entry["ask"]: entry["right"] for entry in entries if entry["right"] in there}


def catalog(embeddings: bool) -> ToolCatalogService:
    return catalog_of(SmallServer("archive", *map(listed, TOOLS)), local=BM25SearchProvider(embeddings))


def listed(tool: ArchiveTool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "inputSchema": tool.input_schema,
        "outputSchema": tool.output_schema,
    }


def test_there_are_two_requests_for_each_tool() -> None:
    assert Counter(requests().values()) == {tool.name: 2 for tool in TOOLS}


@both_ways
async def test_the_right_tool_comes_first(embeddings: bool) -> None:
    tools, missed = catalog(embeddings), {}
    for ask, right in requests().items():
        found = keys(await tools.search(ME, [ask], None, 5))
        if found[:1] != [f"archive:{right}"]:
            missed[ask] = found[:3]
    assert 1 - len(missed) / len(requests()) >= FIRST, missed
