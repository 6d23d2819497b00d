"""A search in process, beside rank-bm25's plain class over the same words in the same run."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable
from itertools import product

from bench.servers.tools import NOUNS, QUERIES, VERBS, many_tools
from pointsman.providers.base import SearchRequest, ToolDocument
from pointsman.providers.bm25.documents import PreparedTools
from pointsman.providers.bm25.provider import BM25SearchProvider
from pointsman.providers.bm25.query import parse
from pointsman.providers.embeddings import load_numpy

SIZES = (100, 1_000, 10_000)
SEARCHES = 300
A_SERVER = 20  # tools on each


async def search() -> None:
    load_numpy()
    print("A search in process, in ms; `changed`: the first after one server of 20 tools has changed")
    print(f"  {'tools':>7}{'':14}{'first':>9}{'changed':>9}{'p50':>7}{'p95':>7}{'p99':>7}")
    for size in SIZES:
        for embeddings in (False, True):
            await _measure(size, embeddings)
    print("Scores of one query in ms: rank-bm25's BM25Plus, ours, and how many times faster")
    for size in SIZES:
        _compare(size)


async def _measure(size: int, embeddings: bool) -> None:
    provider = BM25SearchProvider(embeddings)
    await provider.search(SearchRequest(("anything",), None, tools(1), 5))  # loads the model
    catalog = tools(size)

    async def timed(query: str, known: tuple[ToolDocument, ...]) -> float:
        began = time.perf_counter()
        await provider.search(SearchRequest((query,), None, known, 5))
        return (time.perf_counter() - began) * 1000

    first = await timed("anything", catalog)
    changed = await timed("anything", (*tools(A_SERVER, "changed"), *catalog[A_SERVER:]))
    gc.collect()
    times = sorted([await timed(query, catalog) for query in _queries(SEARCHES)])
    p50, p95, p99 = (times[int(len(times) * part)] for part in (0.5, 0.95, 0.99))
    print(f"  {size:7,}  {provider.name:12}{first:9.1f}{changed:9.1f}{p50:7.2f}{p95:7.2f}{p99:7.2f}", flush=True)


def _compare(size: int) -> None:
    from rank_bm25 import BM25Plus  # these bring numpy, which is loaded as in the gateway

    from pointsman.providers.bm25.postings import Postings

    library = PreparedTools()
    prepared = [library.prepared(tool) for tool in tools(size)]
    theirs = BM25Plus([tool.words.repeat(tool.counts).tolist() for tool in prepared])
    ours = Postings([(tool.words, tool.counts) for tool in prepared])
    asked = [
        [number for token in parse(query).tokens if (number := library.vocabulary.get(token)) is not None]
        for query in QUERIES
    ]
    plain, faster = _each(theirs.get_scores, asked), _each(ours.get_scores, asked)
    print(f"  {size:7,}{plain:10.3f}{faster:10.4f}{plain / faster:8.0f}x", flush=True)


def _each(scores: Callable[[list[int]], object], asked: list[list[int]]) -> float:
    """Take the fastest of several rounds: other load on the machine only adds."""
    rounds = []
    for _ in range(5):
        began = time.perf_counter()
        for query in asked:
            scores(query)
        rounds.append((time.perf_counter() - began) * 1000 / len(asked))
    return min(rounds)


def tools(count: int, server: str = "server") -> tuple[ToolDocument, ...]:
    """Make `count` tools, no two alike: a tool that repeats on another server gets other words."""
    made = []
    kinds = many_tools(0, len(VERBS) * len(NOUNS))
    for number in range(count):
        kind, lap = kinds[number % len(kinds)], number // len(kinds)
        home = f"{server} {number // A_SERVER}"
        description = f"{kind['description']} Edition {lap} of {NOUNS[lap % len(NOUNS)]}."
        made.append(ToolDocument(f"{home}:{kind['name']}", kind["name"], home, description, kind["inputSchema"]))
    return tuple(made)


def _queries(count: int) -> Iterable[str]:
    """Queries of different lengths, each used once."""
    pairs = list(product(VERBS, NOUNS))
    for number in range(count):
        verb, noun = pairs[number * 7 % len(pairs)]
        yield f"{verb} the {noun} number {number}. {QUERIES[number % len(QUERIES)]}" if number % 2 else f"{verb} {noun}"
