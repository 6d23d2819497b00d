"""The lines of a change of the configuration file, for the person who is about to save it. Secrets are masked."""

from __future__ import annotations

from difflib import unified_diff

from pointsman.config.secrets import mask_secrets

CONTEXT_LINES = 3
MAX_LINES = 400


def diff_lines(before: str, after: str) -> list[tuple[str, str]]:
    """Return `(kind, line)`; the kind is `add`, `del`, `gap` or `same`."""
    lines = unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=CONTEXT_LINES)
    shown = [(_kind(line), mask_secrets(line[1:])) for line in lines if not line.startswith(("---", "+++"))]
    return shown[:MAX_LINES]


def _kind(line: str) -> str:
    return {"+": "add", "-": "del", "@": "gap"}.get(line[:1], "same")
