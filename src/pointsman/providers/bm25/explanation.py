"""Why a tool was found, in a few words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pointsman.providers.bm25.documents import FIELDS, Prepared, Vocabulary
from pointsman.providers.bm25.query import Query
from pointsman.providers.bm25.synonyms import synonyms_of

MAX_WORDS = 6

_Numbers = tuple[list[int], list[int]]  # of a word itself, and of its synonyms


class Explainer:
    """Says which words were found where: `weather in name; city in parameter`."""

    def __init__(self, queries: Sequence[Query], context: Query, vocabulary: Vocabulary) -> None:
        self._said = [_said(query, vocabulary) for query in queries]
        self._context = _said(context, vocabulary)

    def explain(self, tool: Prepared, intents: Sequence[int]) -> str:
        """By the words of the queries that it serves, or of all where it serves none."""
        places = tool.places_by_word()
        said: dict[str, _Numbers] = {}
        for index in intents or range(len(self._said)):
            said |= self._said[index]
        found: list[list[str]] = [[] for _ in FIELDS]
        for word, (itself, others) in (said | self._context).items():
            if (field := _field(places, itself)) is not None:
                found[field].append(word)
            elif (field := _field(places, others)) is not None:
                found[field].append(f"~{word}")
        room, parts = MAX_WORDS, []
        for field, words in enumerate(found):
            if words and room > 0:
                parts.append(f"{', '.join(words[:room])} in {FIELDS[field]}")
                room -= len(words)
        return "; ".join(parts) or "similar in meaning"


def _said(query: Query, vocabulary: Vocabulary) -> dict[str, _Numbers]:
    return {
        word: (_numbers((token,), vocabulary), _numbers(synonyms_of(token), vocabulary))
        for token, word in query.said.items()
    }


def _numbers(tokens: Iterable[str], vocabulary: Vocabulary) -> list[int]:
    return [number for token in tokens if (number := vocabulary.get(token)) is not None]


def _field(places: Mapping[int, int], words: Iterable[int]) -> int | None:
    """The weightiest field that has one of the words: the lowest bit of all."""
    bits = 0
    for word in words:
        bits |= places.get(word, 0)
    return (bits & -bits).bit_length() - 1 if bits else None
