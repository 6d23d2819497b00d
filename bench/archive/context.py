"""`python -m bench.archive.context`: `context_search` over 10,000 discoveries, in process."""

from __future__ import annotations

import random
import tempfile
import threading
from pathlib import Path
from time import perf_counter

from pointsman.archive.context.search import ContextSearch
from pointsman.archive.context.vectors import ContextVectors
from pointsman.archive.embedding.static import StaticEmbedding
from pointsman.archive.model.context import TYPES, ContextItem, ItemFilter
from pointsman.archive.store.sqlite.storage import SqliteStorage

ITEMS = 10_000
SEARCHES = 200
SUBJECTS = (
    "token",
    "cookie",
    "session",
    "request",
    "report",
    "invoice",
    "queue",
    "cache",
    "index",
    "schema",
    "migration",
    "upload",
    "mail",
    "search",
)
VERBS = tuple("retries expires locks validates rejects sorts batches compresses encrypts logs caches splits".split())  # noqa: SIM905
REASONS = (
    "races",
    "time-outs",
    "audits",
    "old",
    "clients",
    "slow",
    "disks",
    "large",
    "tenants",
    "cost",
    "privacy",
    "tests",
    "reviews",
    "outages",
)


def main() -> None:
    chance = random.Random(7)
    with tempfile.TemporaryDirectory() as folder:
        storage = SqliteStorage(Path(folder) / "store.db")
        storage.context.replace("bench", "1", [_item(number, chance) for number in range(ITEMS)])
        vectors = ContextVectors(storage.context, StaticEmbedding())
        began = perf_counter()
        vectors.embed_missing(threading.Event())
        print(f"{ITEMS} discoveries embedded at {ITEMS / (perf_counter() - began):.0f} a second")
        search = ContextSearch(storage.context, vectors, lambda path: None, lambda: None)
        times = sorted(_timed(search, chance) for _ in range(SEARCHES))
        p50, p95 = times[len(times) // 2], times[int(len(times) * 0.95)]
        print(f"context_search: p50 {1000 * p50:.1f} ms, p95 {1000 * p95:.1f} ms over {SEARCHES} searches")
        storage.close()


def _item(number: int, chance: random.Random) -> ContextItem:
    words = " ".join(_sentence(chance) for _ in range(chance.randint(1, 6)))
    kind, module = chance.choice(TYPES), chance.choice(SUBJECTS)
    return ContextItem(f"d{number}", "discovery", kind, "", words, "2026-01-01T00:00:00Z", module=module)


def _sentence(chance: random.Random) -> str:
    subject, other = chance.sample(SUBJECTS, 2)
    return f"The {subject} {chance.choice(VERBS)} the {other} because of {chance.choice(REASONS)}."


def _timed(search: ContextSearch, chance: random.Random) -> float:
    query = f"why {chance.choice(VERBS)} the {chance.choice(SUBJECTS)} because of {chance.choice(REASONS)}"
    wanted = ItemFilter(chance.choice([None, *TYPES]), chance.choice([None, *SUBJECTS]))
    began = perf_counter()
    search.search(query, wanted, 10)
    return perf_counter() - began


if __name__ == "__main__":
    main()
