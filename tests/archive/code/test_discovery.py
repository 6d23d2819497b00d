"""Queries in free wording find the code tools, even among the tools of many other servers."""

from __future__ import annotations

import pytest

from pointsman.providers.base import SearchRequest, ToolDocument
from pointsman.providers.bm25.provider import BM25SearchProvider
from tests.archive.code.tool_calls import TOOLS
from tests.golden.golden import servers

REQUESTS = {
    "where is jwt.sign called": "grep_codebase",
    "find all uses of a function in the code": "grep_codebase",
    "search for TODO comments in the project": "grep_codebase",
    "find interface definitions in TypeScript files": "grep_codebase",
    "regex search over the source files": "grep_codebase",
    "show me the AuthService implementation with its imports": "read_file",
    "read the source of a module and its dependencies": "read_file",
    "read UserRepository with its dependencies": "read_file",
    "grep for deprecated api calls": "grep_codebase",
    "find all uses of jwt.sign": "grep_codebase",
    "what's in the config file": "read_file",
    "show the contents of the file main.py": "read_file",
}


SAME_PURPOSE = {"files", "github"}  # these read and search code as well: either answer is right


def documents() -> tuple[ToolDocument, ...]:
    ours = [
        ToolDocument(f"archive:{tool.name}", tool.name, "Archive", tool.description, tool.input_schema)
        for tool in TOOLS.values()
    ]
    others = [
        ToolDocument(f"{server.id}:{tool['name']}", tool["name"], server.name, tool["description"], tool["inputSchema"])
        for server in servers()
        if server.id not in SAME_PURPOSE
        for tool in server.tools
    ]
    return (*ours, *others)


@pytest.mark.no_cover
@pytest.mark.parametrize("embeddings", [False, True])
async def test_the_right_code_tool_is_found_first(embeddings: bool) -> None:
    provider = BM25SearchProvider(embeddings)
    wrong = {}
    for query, right in REQUESTS.items():
        hits = await provider.search(SearchRequest((query,), None, documents(), 5))
        if hits[0].tool_key != f"archive:{right}":
            wrong[query] = [hit.tool_key for hit in hits]
    assert wrong == {}
