"""Creates trees of files; the content of each file says which one it is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def write(root: Path, files: Mapping[str, str]) -> Path:
    for path, content in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    return root


def named(*paths: str) -> dict[str, str]:
    """Files whose content is their own path."""
    return {path: f"content of {path}\n" for path in paths}
