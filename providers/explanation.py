"""Why a tool was found, in a few words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pointsman.providers.documents import FIELDS, Prepared, Vocabulary
from pointsman.providers.query import Query
from pointsman.providers.synonyms import synonyms_of

MAX_WORDS = 6


class Explainer:
    """Says which words were found where: `weather in name; city in parameter`."""

    def __init__(self, queries: Iterable[Query], vocabulary: Vocabulary) -> None:
        self._said = {
            word: (_numbers((token,), vocabulary), _numbers(synonyms_of(token), vocabulary))
            for query in queries
            for token, word in query.said.items()
        }

    def explain(self, tool: Prepared) -> str:
        places = tool.places_by_word()
        found: list[list[str]] = [[] for _ in FIELDS]
        for word, (itself, others) in self._said.items():
            if (field := _field(places, itself)) is not None:
                found[field].append(word)
            elif (field := _field(places, others)) is not None:
                found[field].append(f"~{word}")
        room, said = MAX_WORDS, []
        for field, words in enumerate(found):
            if words and room > 0:
                said.append(f"{', '.join(words[:room])} in {FIELDS[field]}")
                room -= len(words)
        return "; ".join(said) or "similar in meaning"


def _numbers(tokens: Iterable[str], vocabulary: Vocabulary) -> list[int]:
    return [number for token in tokens if (number := vocabulary.get(token)) is not None]


def _field(places: Mapping[int, int], words: Iterable[int]) -> int | None:
    """The weightiest field that has one of the words: the lowest bit of all."""
    bits = 0
    for word in words:
        bits |= places.get(word, 0)
    return (bits & -bits).bit_length() - 1 if bits else None
