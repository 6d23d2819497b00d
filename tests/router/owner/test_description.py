"""What the owner reads about a server."""

from __future__ import annotations

from pointsman.router.owner.description import silent_step


def test_only_a_program_that_the_gateway_started_is_restarted_by_it() -> None:
    assert silent_step({"id": "shop", "kind": "stdio"}) == "`pointsman server restart shop` starts it again"
    for kind in ("http", "sse"):
        assert silent_step({"id": "web", "kind": kind}).startswith("Restart it where it runs")
