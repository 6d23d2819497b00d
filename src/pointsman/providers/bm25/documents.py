"""A tool as search sees it: which tokens stand in which of its fields."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from pointsman.providers.base import ToolDocument
from pointsman.providers.schema import parameters_of
from pointsman.providers.text import calm, tokens, without_cjk

if TYPE_CHECKING:  # numpy is heavy: it comes with the first search, not with the gateway
    import numpy as np
    from numpy.typing import NDArray

Field = Literal["name", "server", "description", "parameter", "parameter description"]

# How often a field's tokens count in the document that is ranked, weightiest first.
WEIGHTS: Mapping[Field, int] = {"name": 6, "server": 4, "description": 2, "parameter": 1, "parameter description": 1}
FIELDS = tuple(WEIGHTS)
IN_NAME = 1  # the bit of the first field

# What a tool is for stands at the beginning; the rest of a long text finds everything and tells nothing.
MAX_DESCRIPTION_CHARS = 800
MAX_NAMES_CHARS = 300  # of all parameters together
MAX_DETAILS_CHARS = 600  # of their descriptions
# Bounds for what a server may send; real tools stay far below.
MAX_PARAMETERS = 200
MAX_PARAMETER_CHARS = 500
MAX_DEPTH = 3
MAX_MEANING_CHARS = 4_000

_BOUNDARY = re.compile(r"[_\-.:/]+|(?<=[a-z0-9])(?=[A-Z])")

Texts = Mapping[Field, str]
Tokens = Mapping[Field, Sequence[str]]


class Vocabulary:
    """Numbers for tokens. Only grows, so that what was numbered once stays comparable."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def number(self, token: str) -> int:
        return self._numbers.setdefault(token, len(self._numbers))

    def get(self, token: str) -> int | None:
        return self._numbers.get(token)


@dataclass(slots=True, eq=False)
class Prepared:
    """The tokens of one tool, each once and by number, in arrays of the same length; small, because there are many."""

    words: NDArray[np.int32]
    counts: NDArray[np.int32]  # weighted: as if each field stood there as often as it weighs
    places: NDArray[np.uint8]  # which fields, a bit for each
    vector: NDArray[np.float16] | None = None  # what it means; filled in when it is first needed

    def places_by_word(self) -> dict[int, int]:
        return dict(zip(self.words.tolist(), self.places.tolist(), strict=True))


def texts_of(document: ToolDocument) -> Texts:
    names, details = _parameter_texts(document.input_schema)
    return {
        "name": document.tool_name,
        "server": document.server_name,
        "description": _beginning(document.description, MAX_DESCRIPTION_CHARS),
        "parameter": names,
        "parameter description": details,
    }


class LeanSchema(dict[str, Any]):
    """What search reads of a schema, in place of the schema."""

    __slots__ = ("details", "names")

    def __init__(self, names: str, details: str) -> None:
        super().__init__()
        self.names = names
        self.details = details


def lean(document: ToolDocument) -> ToolDocument:
    """The same to search, without what search does not read: for documents that are kept beside many others."""
    texts = texts_of(document)
    schema = LeanSchema(texts["parameter"], texts["parameter description"])
    return ToolDocument(document.tool_key, document.tool_name, document.server_name, texts["description"], schema)


def _parameter_texts(schema: Mapping[str, Any]) -> tuple[str, str]:
    """All names, and all descriptions."""
    if isinstance(schema, LeanSchema):
        return schema.names, schema.details
    parameters = list(islice(_parameters(schema, schema, MAX_DEPTH), MAX_PARAMETERS))
    names, details = " ".join(name for name, _ in parameters), " ".join(text for _, text in parameters)
    return _beginning(names, MAX_NAMES_CHARS), _beginning(details, MAX_DETAILS_CHARS)


def _beginning(text: str, room: int) -> str:
    """As many whole words as there is room for."""
    return text if len(text) <= room else text[:room].rpartition(" ")[0] or text[:room]


def tokens_by_field(texts: Texts) -> Tokens:
    """The costly half of preparing a tool, which needs nothing that others share."""
    return {field: tokens(texts[field]) for field in FIELDS}


def prepare(found: Tokens, vocabulary: Vocabulary) -> Prepared:
    import numpy as np

    counts: dict[int, int] = {}
    places: dict[int, int] = {}
    for bit, (field, weight) in enumerate(WEIGHTS.items()):
        for token in found[field]:
            word = vocabulary.number(token)
            counts[word] = counts.get(word, 0) + weight
            places[word] = places.get(word, 0) | 1 << bit
    return Prepared(
        np.fromiter(counts, np.int32, len(counts)),
        np.fromiter(counts.values(), np.int32, len(counts)),
        np.fromiter(places.values(), np.uint8, len(counts)),
    )


def meaning_of(texts: Texts) -> str:
    """The text to embed, without CJK, of which the model knows too little; empty where that is most of it."""
    identifiers = (texts["name"], texts["server"], texts["parameter"])
    name, server, parameters = (_BOUNDARY.sub(" ", calm(text)) for text in identifiers)
    text = f"{name} {server} {calm(texts['description'])} {parameters}".strip()[:MAX_MEANING_CHARS]
    return without_cjk(text)


def _parameters(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Iterator[tuple[str, str]]:
    """Names and descriptions, also of what lies inside objects and lists."""
    for name, inner in parameters_of(schema, root).properties.items():
        description = inner.get("description") if isinstance(inner, dict) else None
        yield name[:MAX_PARAMETER_CHARS], description[:MAX_PARAMETER_CHARS] if isinstance(description, str) else ""
        if isinstance(inner, dict) and depth > 1:
            yield from _parameters(inner, root, depth - 1)
    items = schema.get("items")
    if isinstance(items, dict) and depth > 1:
        yield from _parameters(items, root, depth - 1)
