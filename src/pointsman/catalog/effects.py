"""What a tool may do to the world, as far as its server's annotations are trusted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

from pointsman.config.sections.server import Server

Effect = Literal["read", "write", "destructive"]
EFFECTS: tuple[Effect, ...] = get_args(Effect)


def claimed_effect(tool: Mapping[str, Any]) -> Effect:
    """Return the effect that the annotations claim. Without annotations a tool is destructive, as the protocol says."""
    annotations = tool.get("annotations")
    if not isinstance(annotations, dict):
        return "destructive"
    if annotations.get("readOnlyHint") is True:
        return "read"
    return "write" if annotations.get("destructiveHint") is False else "destructive"


def effect_of(server: Server, claimed: Effect) -> Effect:
    """Return the effect that counts: the claimed one only if the server's annotations are trusted."""
    return claimed if server.trusts_annotations else "destructive"
