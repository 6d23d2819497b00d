"""Rows as they come: each once, when its call is over."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from pointsman.router.audit.filters import Filter
from pointsman.router.audit.reading import read_calls
from pointsman.router.audit.rows import Row, row_of

LOOK_EVERY_S = 0.5


def follow(
    state_dir: Path, wanted: Filter, lines: int, *, pause: Callable[[], None] = lambda: time.sleep(LOOK_EVERY_S)
) -> Iterator[list[Row]]:
    """The newest `lines` rows first, then for ever what has come since, after each `pause`. Raises as `read_rows`."""
    newest = max((intent.seq for intent, _ in islice(read_calls(state_dir, Filter(), backwards=True), 1)), default=0)
    under_way = {intent.seq for intent, _ in read_calls(state_dir, Filter(outcome="")) if intent.seq <= newest}
    earlier = (
        row_of(intent, outcome)
        for intent, outcome in read_calls(state_dir, wanted, backwards=True)
        if outcome is not None and intent.seq <= newest and intent.seq not in under_way
    )
    yield list(islice(earlier, lines))[::-1]
    while True:
        pause()
        fresh: list[Row] = []
        for intent, outcome in read_calls(state_dir, Filter(after_seq=newest, also=frozenset(under_way))):
            newest = max(newest, intent.seq)
            if outcome is None:
                under_way.add(intent.seq)
                continue
            under_way.discard(intent.seq)
            if wanted.wants_intent(intent) and wanted.wants_ending(outcome):
                fresh.append(row_of(intent, outcome))
        yield fresh
