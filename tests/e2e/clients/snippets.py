"""The blocks of docs/guide/clients.md that are marked with the name of a client."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "guide" / "clients.md"
ADDRESS = "http://127.0.0.1:3282"
_BLOCK = re.compile(r"<!-- client: (?P<name>\S+) -->\n```\w+\n(?P<code>.*?)```", re.DOTALL)


def blocks() -> dict[str, str]:
    return {found["name"]: found["code"] for found in _BLOCK.finditer(PAGE.read_text())}


def snippet(name: str, base_url: str) -> str:
    """The block of a client, pointed at the gateway of a test."""
    return blocks()[name].replace(ADDRESS, base_url)
