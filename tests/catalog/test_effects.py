"""The effect of a tool: what its annotations claim, and whether the claim counts."""

from __future__ import annotations

from typing import Any

import pytest

from pointsman.catalog.effects import Effect, claimed_effect, effect_of
from pointsman.config.sections.server import Server


@pytest.mark.parametrize(
    ("annotations", "effect"),
    [
        (None, "destructive"),
        ({}, "destructive"),
        ({"readOnlyHint": True}, "read"),
        ({"readOnlyHint": True, "destructiveHint": True}, "read"),  # the protocol: only meaningful if not read-only
        ({"readOnlyHint": False, "destructiveHint": False}, "write"),
        ({"destructiveHint": False}, "write"),
        ({"readOnlyHint": 1}, "destructive"),
        ("readOnlyHint", "destructive"),
    ],
)
def test_annotations_claim_an_effect(annotations: Any, effect: Effect) -> None:
    tool = {"name": "tool"} if annotations is None else {"name": "tool", "annotations": annotations}
    assert claimed_effect(tool) == effect


@pytest.mark.parametrize(
    ("server", "effect"),
    [
        (Server(command="program"), "destructive"),
        (Server(command="program", trust_annotations=True), "read"),
        (Server(bundled="archive"), "read"),
        (Server(bundled="archive", trust_annotations=False), "destructive"),
    ],
)
def test_a_claim_counts_only_if_the_server_is_trusted(server: Server, effect: Effect) -> None:
    assert effect_of(server, "read") == effect
