"""Example requests for the archive's tools: what people ask in words that no description has.

Tool search compares a request with each of them by meaning; clients and models do not see them. They spread over the
forms in which people ask and over matters. `example_requests.txt` has them, one a line below the name of their tool. Do
not copy requests from tests/golden: those measure the search.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files


@cache
def load_example_requests() -> Mapping[str, tuple[str, ...]]:
    """The examples by the name of their tool."""
    text = files("pointsman.archive.tools").joinpath("example_requests.txt").read_text(encoding="utf-8")
    blocks = [block.splitlines() for block in text.strip().split("\n\n")]
    return {heading.removeprefix("# "): tuple(requests) for heading, *requests in blocks}
