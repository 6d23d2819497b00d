"""Names that resemble a wrong one, for answers that help."""

from __future__ import annotations

from collections.abc import Sequence

_LEAST_LIKENESS = 55
_READ_CHARS = 300


def nearest(name: str, names: Sequence[str], limit: int = 3) -> list[str]:
    """The likest first; none where nothing is like it."""
    from rapidfuzz import fuzz, process, utils  # at first use: most calls find what they name

    found = process.extract(
        name[:_READ_CHARS],
        names,
        scorer=fuzz.WRatio,
        processor=utils.default_process,
        limit=limit,
        score_cutoff=_LEAST_LIKENESS,
    )
    return [match for match, _, _ in found]
