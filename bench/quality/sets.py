"""Sets of tools and requests, as stored on disk: `<set>/tools.jsonl` and `<set>/queries.jsonl`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from pointsman.providers.base import ToolDocument


@dataclass(frozen=True, slots=True)
class Asked:
    """One request and the tools it needs; any equivalent of such a tool counts too."""

    query: str
    wanted: tuple[frozenset[str], ...]


@dataclass(frozen=True, slots=True)
class ToolSet:
    name: str
    tools: tuple[dict[str, Any], ...]
    documents: tuple[ToolDocument, ...]
    asked: tuple[Asked, ...]


def load_sets(folder: Path) -> list[ToolSet]:
    """Those that have requests, in the order of their names."""
    return [each for each in _load_all(folder) if each.asked]


def load_tools_alone(folder: Path) -> list[ToolDocument]:
    """The tools of the sets that have no requests."""
    return [document for each in _load_all(folder) if not each.asked for document in each.documents]


def _load_all(folder: Path) -> list[ToolSet]:
    return [_load(path.parent) for path in sorted(folder.glob("*/tools.jsonl"))]


def spread(asked: tuple[Asked, ...], most: int) -> list[Asked]:
    """The same sample each time, from all over the set."""
    return [asked[place * len(asked) // most] for place in range(most)] if len(asked) > most else list(asked)


def _load(folder: Path) -> ToolSet:
    tools = tuple(_lines(folder / "tools.jsonl"))
    asked = tuple(_asked(line) for line in _lines(folder / "queries.jsonl"))
    return ToolSet(folder.name, tools, tuple(map(_document, tools)), asked)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_bytes().splitlines():
        if line.strip():
            yield msgspec.json.decode(line)


def _asked(line: dict[str, Any]) -> Asked:
    equals = line.get("alt") or {}
    return Asked(line["query"], tuple(frozenset((key, *equals.get(key, ()))) for key in line["gold"]))


def _document(tool: dict[str, Any]) -> ToolDocument:
    key = f"{tool['server']}:{tool['name']}"
    return ToolDocument(key, tool["name"], tool["server"], tool["description"] or "", tool["inputSchema"] or {})
