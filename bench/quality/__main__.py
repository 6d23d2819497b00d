"""`make quality`: answers over real servers; tools, through the provider, a gateway and the search service; documents,
through the archive's tool.

Fails under the floors. `python -m bench.quality sqlite` measures documents on that engine only.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import astuple
from itertools import product
from pathlib import Path
from statistics import median

from bench.archive.engines import ENGINES
from bench.quality import answers, archive, in_process, over_clients, over_gateway, over_service
from bench.quality.in_process import Measured
from bench.quality.metrics import Figures, mean
from bench.quality.over_clients import Found
from bench.quality.over_gateway import Seen
from bench.quality.sets import Asked, ToolSet, load_sets
from pointsman.core.extras import semantic_is_installed
from pointsman.providers.bm25.provider import BM25SearchProvider

DATA = "POINTSMAN_TOOL_SEARCH_DATA"
FLOORS = {"bm25": 0.760, "bm25+static": 0.795, "bm25+static+minilm": 0.805}  # nDCG@10, the mean over the sets
MOST_LOST = 0.03  # of nDCG@10 by misspellings
LEAST_SEPARATION = 0.93
MOST_TOKENS = 400
HEADS = ("recall@1", "@3", "@5", "@10", "complete@5", "nDCG@10", "MRR")


async def main(engines: Sequence[str]) -> int:
    failures = [*await answers.measure(), *await _tools(), *_documents(engines)]
    for failure in failures:
        print(f"under the floor: {failure}", file=sys.stderr)
    return 1 if failures else 0


def _documents(engines: Sequence[str]) -> list[str]:
    folder = os.environ.get(archive.DATA)
    if not folder:
        print(f"The public sets of documents are not measured: {archive.DATA} does not name their folder.")
    return archive.measure(Path(folder) if folder else None, engines)


async def _tools() -> list[str]:
    folder = os.environ.get(DATA)
    if not folder:
        print(f"The public sets of tools and requests are not measured: {DATA} does not name their folder.")
        return []
    sets = load_sets(Path(folder))
    if not sets:
        return [f"{folder} has no <set>/tools.jsonl with a queries.jsonl beside it. Is {DATA} right?"]
    failures: list[str] = []
    for provider in _providers(sets):
        failures += await _through_the_provider(sets, provider)
    failures += await _over_a_gateway(Path(folder), sets)
    failures += await _through_the_service(sets)
    print()
    await _beside_the_clients(Path(folder), sets)
    print()
    return failures


def _providers(sets: Sequence[ToolSet]) -> Iterator[BM25SearchProvider]:
    yield BM25SearchProvider(embeddings=False)
    yield BM25SearchProvider()
    if not semantic_is_installed():
        print("The sentence encoder is not installed (`make semantic` installs it) and not measured.\n")
        return
    encoder = in_process.sentence_encoder()
    for each in sets:
        encoder.encode_now(each.documents)
    yield BM25SearchProvider(encoder=encoder)


async def _through_the_provider(sets: Sequence[ToolSet], provider: BM25SearchProvider) -> list[str]:
    print(f"Through the provider, {provider.name}")
    _head("p50 ms", "p95 ms", "AUC")
    all_: list[Measured] = []
    for each in sets:
        measured = await in_process.measure(provider, each, [other for other in sets if other is not each])
        all_.append(measured)
        _line(each.name, len(each.tools), measured.figures, measured.p50_ms, measured.p95_ms)
    macro = mean(each.figures for each in all_)
    separation = in_process.separation(all_)
    _line("macro", None, macro, auc=separation)
    failures = []
    misspelt = mean([await in_process.measure_misspelt(provider, each) for each in sets])
    _line("misspelt", None, misspelt)
    print()
    if macro.ndcg_10 - misspelt.ndcg_10 > MOST_LOST:
        failures.append(
            f"{provider.name}: misspelt requests have nDCG@10 {misspelt.ndcg_10:.4f}, {macro.ndcg_10:.4f} clean"
        )
    if macro.ndcg_10 < FLOORS[provider.name]:
        failures.append(f"{provider.name}: nDCG@10 {macro.ndcg_10:.4f}, wanted {FLOORS[provider.name]}")
    if separation < LEAST_SEPARATION:
        failures.append(f"{provider.name}: AUC {separation:.4f}, wanted {LEAST_SEPARATION}")
    return failures


async def _over_a_gateway(folder: Path, sets: Sequence[ToolSet]) -> list[str]:
    print(f"Over a running gateway, {over_gateway.SAMPLE} requests of each set")
    _head("p50 ms", "p95 ms", "tokens")
    all_: list[Seen] = []
    for each in sets:
        seen = await over_gateway.measure(folder, each)
        all_.append(seen)
        _line(each.name, len(each.tools), seen.figures, seen.p50_ms, seen.p95_ms, tokens=median(seen.answer_tokens))
    tokens = median(length for seen in all_ for length in seen.answer_tokens)
    _line("all", None, mean(seen.figures for seen in all_), tokens=tokens)
    if tokens > MOST_TOKENS:
        return [f"the median answer has {tokens:.0f} tokens, at most {MOST_TOKENS} wanted"]
    return []


async def _through_the_service(sets: Sequence[ToolSet]) -> list[str]:
    provider = BM25SearchProvider()
    print(f"\nThrough the search service over HTTP, {over_service.SAMPLE} requests of each set; equal: as in process")
    _head("p50 ms", "p95 ms", "equal")
    failures = []
    async with over_service.service() as http:
        for each in sets:
            seen = await over_service.compare(http, provider, each)
            _line(each.name, len(each.tools), seen.figures, seen.p50_ms, seen.p95_ms, equal=seen.equal)
            if seen.equal < seen.asked:
                told = f"{seen.asked - seen.equal} of {seen.asked} answers differ from those in process"
                failures.append(f"{each.name} through the search service: {told}, e.g. {seen.example!r}")
    return failures


async def _beside_the_clients(folder: Path, sets: Sequence[ToolSet]) -> None:
    """Has no floor: other people's programs are measured as they are."""
    clients = [client for client in over_clients.CLIENTS if client.version]
    for client in over_clients.CLIENTS:
        version = client.version or "is not installed (`make clients` installs it) and not measured"
        print(f"The own search of {client.name} {version}")
    if not clients:
        return
    samples = {each.name: over_clients.sample(each) for each in sets}
    found: dict[tuple[str, str, str], Found] = {}
    for each in sets:
        forms = _forms(samples[each.name])
        answers = await over_clients.through_clients(clients, folder, each, forms)
        found |= {(form, name, each.name): answer for (name, form), answer in answers.items()}
        for form, embeddings in product(forms, (False, True)):
            provider = BM25SearchProvider(embeddings)
            answer = await over_clients.through_provider(provider, each, forms[form])
            found[form, provider.name, each.name] = answer
    _print_found(found, sets)


def _forms(asked: Sequence[Asked]) -> dict[str, list[Asked]]:
    return {"as written": list(asked), "without stop words": [over_clients.as_keywords(each) for each in asked]}


def _print_found(found: dict[tuple[str, str, str], Found], sets: Sequence[ToolSet]) -> None:
    for form, name in dict.fromkeys((form, name) for form, name, _ in found):
        print(f"{name}, {over_clients.SAMPLE} requests of each set, {form}")
        _head("", "", "longest")
        for each in sets:
            answer = found[form, name, each.name]
            _line(each.name, len(each.tools), answer.figures, longest=answer.most)
        _line("macro", None, mean(found[form, name, each.name].figures for each in sets))


def _head(*more: str) -> None:
    print(f"  {'set':12}{'tools':>7}" + "".join(f"{head:>11}" for head in (*HEADS, *more)))


def _line(name: str, tools: int | None, figures: Figures, p50_ms: float = 0, p95_ms: float = 0, **last: float) -> None:
    cells = [f"{figure:.4f}" for figure in astuple(figures)]
    cells += [f"{time:.2f}" if time else "" for time in (p50_ms, p95_ms)]
    cells += [f"{figure:.4f}" if figure < 1 else f"{figure:.0f}" for figure in last.values()]
    print(f"  {name:12}{tools or '':>7}" + "".join(f"{cell:>11}" for cell in cells), flush=True)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:] or ENGINES)))
