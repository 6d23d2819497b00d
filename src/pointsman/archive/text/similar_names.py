"""Suggests names that resemble an unknown one."""

from __future__ import annotations

from collections.abc import Sequence

_LEAST_SIMILARITY = 55  # of 100
_MOST_CHARS = 300


def nearest(name: str, names: Sequence[str], limit: int = 3) -> list[str]:
    """The most similar first; empty if none is similar enough."""
    from rapidfuzz import fuzz, process, utils  # at first use: most calls name what exists

    found = process.extract(
        name[:_MOST_CHARS],
        names,
        scorer=fuzz.WRatio,
        processor=utils.default_process,
        limit=limit,
        score_cutoff=_LEAST_SIMILARITY,
    )
    return [match for match, _, _ in found]
