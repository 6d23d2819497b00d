"""Learns which tools were called shortly after a discovery that listed them, and for which words."""

from __future__ import annotations

import math
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from pointsman.catalog.results import SearchResult
from pointsman.core.model import Caller
from pointsman.providers.text import tokens
from pointsman.router.audit.rows import Intent, Outcome

PAIR_S = 600.0  # a later call is not attributed to the discovery
HALF_LIFE_S = 14 * 86_400.0
SATURATION = 2.0  # choices at which a figure reaches half of its maximum
MIN_FIGURE = 0.25  # below this the queries have too little in common

MAX_CALLERS = 256
MAX_DISCOVERIES = 4  # of one caller
MAX_QUERY_CHARS = 2_000
MAX_QUERY_WORDS = 32
MAX_WORDS = 4_000  # of all projects together; each takes about 800 bytes, and 120 for each further tool
MAX_TOOLS = 8  # for one word
MAX_DIGITS = 3  # of a number that is learnt: `365` is part of a name, a longer one is an id that never returns

_Words = tuple[str, ...]
Choice = tuple[str | None, str, str]  # project, word, tool key


class _Discovery(Struct, frozen=True):
    at: float
    listed: dict[str, _Words]  # by tool key: the words it was found for; a choice removes the entry


class _Weight(Struct):
    """A count of choices with exponential decay."""

    value: float
    at: float

    def now(self, at: float) -> float:
        return self.value * math.exp2((self.at - at) / HALF_LIFE_S)

    def add(self, at: float) -> None:
        self.value, self.at = self.now(at) + 1.0, at


class UsageMemory:
    """Learns from a caller's discoveries and calls, for all callers of the same project.

    Fits `router.audit.log.Observer`. All of it is bounded, in memory, and lost when the daemon ends, unless gateways
    share it: then `take` gives what was learnt here, and `merge` adds what all have learnt.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._discoveries: OrderedDict[Caller, deque[_Discovery]] = OrderedDict()
        self._learnt: OrderedDict[tuple[str | None, str], dict[str, _Weight]] = OrderedDict()
        self._new: Counter[Choice] | None = None  # learnt since the last `take`; None: it is not shared

    def share(self) -> None:
        """Keep what is learnt from now on for `take`."""
        self._new = Counter()

    def take(self) -> Mapping[Choice, float]:
        """Return what was learnt since the last time. Whoever cannot store it gives it back."""
        taken, self._new = self._new or Counter(), Counter()
        return taken

    def give_back(self, choices: Mapping[Choice, float]) -> None:
        if self._new is not None and len(self._new) < MAX_WORDS * MAX_TOOLS:
            self._new.update(choices)

    def merge(self, weights: Iterable[tuple[str | None, str, str, float, float]]) -> None:
        """Replace weights by those of all gateways: project, word, tool key, weight and its age, the latest first."""
        now, new = self._clock(), self._new or Counter()
        for project_id, word, tool_key, value, age_s in reversed(list(weights)):
            learnt_here = new[project_id, word, tool_key]  # not yet among all
            self._set(project_id, word, tool_key, _Weight(value + learnt_here, now - age_s), now)

    def discovered(self, caller: Caller, queries: Sequence[str], results: Sequence[SearchResult]) -> None:
        """Record the results of a discovery; a soon called one was chosen for the queries that it serves."""
        if not results:
            return
        asked = [_words(query) for query in queries]
        everything = tuple(dict.fromkeys(word for query in asked for word in query))
        listed = {
            found.tool.document.tool_key: _union([asked[index] for index in found.intents]) or everything
            for found in results
        }
        recent = self._discoveries.setdefault(caller, deque(maxlen=MAX_DISCOVERIES))
        self._discoveries.move_to_end(caller)
        recent.append(_Discovery(self._clock(), listed))
        if len(self._discoveries) > MAX_CALLERS:
            self._discoveries.popitem(last=False)

    def finished(self, intent: Intent, outcome: Outcome) -> None:
        if not self._discoveries:
            return
        if intent.kind != "execute" or outcome.outcome != "ok" or intent.token is None or intent.tool_key is None:
            return
        recent = self._discoveries.get(Caller(intent.token, intent.project))
        if recent is None:
            return
        now = self._clock()
        for discovery in reversed(recent):
            if now - discovery.at > PAIR_S:
                return
            # Removed, because repeated calls after one discovery count as one choice.
            words = discovery.listed.pop(intent.tool_key, None)
            if words is not None:
                self._learn(intent.project, words, intent.tool_key, now)
                return

    def journal_failed(self) -> None:
        """Ignored."""

    def figures(self, project_id: str | None, queries: Sequence[str]) -> Mapping[str, float]:
        """Return the share of a query's words that led to a tool before. Fits `catalog.results.UsageFigures`."""
        best: dict[str, float] = {}
        if not self._learnt:
            return best
        now = self._clock()
        for query in queries:
            words = _words(query)
            for tool_key, figure in self._shares(project_id, words, now).items():
                if figure >= max(best.get(tool_key, 0.0), MIN_FIGURE):
                    best[tool_key] = figure
        return best

    def _shares(self, project_id: str | None, words: _Words, now: float) -> dict[str, float]:
        shares: dict[str, float] = {}
        for word in words:
            for tool_key, weight in self._learnt.get((project_id, word), {}).items():
                value = weight.now(now)
                shares[tool_key] = shares.get(tool_key, 0.0) + value / (value + SATURATION) / len(words)
        return shares

    def _learn(self, project_id: str | None, words: _Words, tool_key: str, now: float) -> None:
        for word in words:
            known = self._learnt.get((project_id, word), {}).get(tool_key) or _Weight(0.0, now)
            known.add(now)
            self._set(project_id, word, tool_key, known, now)
            if self._new is not None and len(self._new) < MAX_WORDS * MAX_TOOLS:
                self._new[project_id, word, tool_key] += 1

    def _set(self, project_id: str | None, word: str, tool_key: str, weight: _Weight, now: float) -> None:
        weights = self._learnt.setdefault((project_id, word), {})
        self._learnt.move_to_end((project_id, word))
        weights[tool_key] = weight
        if len(weights) > MAX_TOOLS:
            del weights[min(weights, key=lambda key: weights[key].now(now))]
        while len(self._learnt) > MAX_WORDS:
            self._learnt.popitem(last=False)


def _words(query: str) -> _Words:
    words = (word for word in tokens(query[:MAX_QUERY_CHARS]) if len(word) <= MAX_DIGITS or not word.isdecimal())
    return tuple(dict.fromkeys(words))[:MAX_QUERY_WORDS]


def _union(parts: Sequence[_Words]) -> _Words:
    return tuple(dict.fromkeys(word for part in parts for word in part))
