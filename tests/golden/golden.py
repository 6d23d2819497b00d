"""The golden set: a catalog and requests of our own, served by the real catalog and the real provider."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from pointsman.catalog.results import SearchOutcome
from pointsman.catalog.service import ToolCatalogService
from pointsman.core.model import Caller
from pointsman.providers.bm25.provider import BM25SearchProvider
from tests.catalog.sources import SmallServer, catalog_of

HERE = Path(__file__).parent
ME = Caller("laptop", None)


@dataclass(frozen=True)
class Request:
    how: str
    ask: str
    right: tuple[str, ...]


@dataclass(frozen=True)
class Steps:
    ask: tuple[str, ...]
    right: tuple[tuple[str, ...], ...]  # for each step


def requests() -> list[Request]:
    return [Request(entry["how"], entry["ask"], tuple(entry["right"])) for entry in _load("requests.yaml")]


def steps() -> list[Steps]:
    return [Steps(tuple(entry["ask"]), tuple(map(tuple, entry["right"]))) for entry in _load("steps.yaml")]


def unfit() -> list[str]:
    return list(_load("unfit.yaml"))


def servers() -> list[SmallServer]:
    return [_server(server_id, entry) for server_id, entry in _load("catalog.yaml").items()]


def golden_catalog(embeddings: bool, **more: Any) -> ToolCatalogService:
    return catalog_of(*servers(), local=BM25SearchProvider(embeddings), **more)


def keys(outcome: SearchOutcome) -> list[str]:
    return [found.tool.document.tool_key for found in outcome.results]


def place(found: list[str], right: tuple[str, ...]) -> int | None:
    """Where the first right one stands, from 0."""
    return next((index for index, key in enumerate(found) if key in right), None)


def _server(server_id: str, entry: dict[str, Any]) -> SmallServer:
    server = SmallServer(server_id, *(_tool(name, tool) for name, tool in entry["tools"].items()))
    server.name = entry["name"]
    return server


def _tool(name: str, entry: dict[str, Any]) -> dict[str, Any]:
    needs, takes = entry.get("needs", {}), entry.get("takes", {})
    properties = {parameter: _schema(text) for parameter, text in (needs | takes).items()}
    schema = {"type": "object", "properties": properties, "required": list(needs)}
    return {"name": name, "description": entry["about"], "inputSchema": schema}


def _schema(text: str) -> dict[str, str]:
    """`(integer) How many`, or only `How many`."""
    read = re.fullmatch(r"(?:\((\w+)\) )?(.*)", text)
    assert read is not None
    return {"type": read[1] or "string", "description": read[2]}


def _load(name: str) -> Any:
    return YAML(typ="safe").load(HERE / name)
