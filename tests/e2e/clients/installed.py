"""Where `make clients` puts the clients, and what a test says where they are missing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CLIENTS = ROOT / ".foreign" / "clients"
NODE_FOLDER = CLIENTS / "node"
NODE_BIN = NODE_FOLDER / "node_modules" / "node" / "bin"  # of its own: the Inspector needs Node 22
PYTHON = CLIENTS / "python" / "bin" / "python"
LANGCHAIN = CLIENTS / "langchain" / "bin" / "python"  # needs mcp<2, which no other may have


def _needs(folder: str) -> list[pytest.MarkDecorator]:
    absent = not (CLIENTS / folder / ".installed").exists()
    reason = f"the clients in .foreign/clients/{folder} are not installed (run `make clients`)"
    return [pytest.mark.clients, pytest.mark.skipif(absent, reason=reason)]


needs_node = _needs("node")
needs_python = _needs("python")
needs_langchain = _needs("langchain")


def environment(home: Path, **more: str) -> dict[str, str]:
    """Our Node before the system's, nothing fetched at run time, and nothing written to the developer's home."""
    path = f"{NODE_BIN}:{os.environ.get('PATH', '')}"
    return {"PATH": path, "HOME": str(home), "npm_config_offline": "true", "NO_UPDATE_NOTIFIER": "1", **more}
