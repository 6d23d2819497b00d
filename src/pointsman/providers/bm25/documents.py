"""Tools as search sees them: the tokens of each of their fields, prepared once for each content."""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakKeyDictionary

from pointsman.providers.base import ToolDocument
from pointsman.providers.bm25.actions import Kind, kind_of_tool
from pointsman.providers.bm25.spelling import is_correctable
from pointsman.providers.embeddings import Embedder, unit
from pointsman.providers.schema import parameters_of
from pointsman.providers.text import STOP_WORDS, calm, sentences, stem, without_cjk, words

if TYPE_CHECKING:  # numpy is heavy: it comes with the first search, not with the gateway
    import numpy as np
    from numpy.typing import NDArray


Field = Literal["name", "server", "title", "description", "parameter", "parameter description"]

# How often a field's tokens count in the document that is ranked, weightiest first.
WEIGHTS: Mapping[Field, int] = {
    "name": 6,
    "server": 4,
    "title": 2,
    "description": 2,
    "parameter": 1,
    "parameter description": 1,
}
FIELDS = tuple(WEIGHTS)
IN_NAME = 1  # the bit of the first field
IN_DESCRIPTION = 1 << FIELDS.index("description")
# A word that several parameters repeat (`source_timezone`, `target_timezone`) says no more than one of them.
COUNTED_ONCE: frozenset[Field] = frozenset({"parameter", "parameter description"})

# The purpose of a tool is at the beginning of its text; the rest of a long one matches everything.
MAX_DESCRIPTION_CHARS = 800
MAX_TITLE_CHARS = 200
MAX_NAMES_CHARS = 300  # of all parameters together
MAX_DETAILS_CHARS = 600  # of their descriptions
# Bounds for what a server may send; real tools stay far below.
MAX_PARAMETERS = 200
MAX_PARAMETER_CHARS = 500
MAX_DEPTH = 3
MAX_MEANING_CHARS = 4_000
MAX_PURPOSE_CHARS = 300  # of the first sentence of a description
WHOLE_WEIGHT = 2  # of the vector of all texts of a tool, relative to that of its purpose

_BOUNDARY = re.compile(r"[_\-.:/]+|(?<=[a-z0-9])(?=[A-Z])")

Texts = Mapping[Field, str]


@dataclass(frozen=True, slots=True)
class Read:
    """What is read of a tool's texts."""

    tokens: Mapping[Field, Sequence[str]]
    words: Mapping[str, str]  # each once, with its token
    kind: Kind | None


class Vocabulary:
    """Numbers for tokens, and the words that they come from. Only grows, so that numbers stay comparable."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._words: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def number(self, token: str) -> int:
        return self._numbers.setdefault(token, len(self._numbers))

    def get(self, token: str) -> int | None:
        return self._numbers.get(token)

    def note_words(self, words: Mapping[str, str]) -> None:
        """Note words with their tokens, as far as they can stand for a misspelt one."""
        self._words.update((word, self.number(token)) for word, token in words.items() if is_correctable(word))

    def words(self) -> dict[str, int]:
        """The words with the numbers of their tokens, as they are now: other threads may add some meanwhile."""
        return self._words.copy()


@dataclass(slots=True, eq=False)
class Prepared:
    """The tokens of one tool, each once and by number, in compact arrays of the same length."""

    words: NDArray[np.int32]
    counts: NDArray[np.int32]  # weighted: as if each field occurred as often as it weighs
    fields: NDArray[np.uint8]  # that have the word, a bit for each
    kind: Kind | None  # whether it reads or writes, by its name
    vector: NDArray[np.float16] | None = None  # the embedding; computed when it is first needed

    def fields_by_word(self) -> dict[int, int]:
        return dict(zip(self.words.tolist(), self.fields.tolist(), strict=True))


def texts_of(document: ToolDocument) -> Texts:
    names, details = _parameter_texts(document.input_schema)
    return {
        "name": document.tool_name,
        "server": document.server_name,
        "title": _beginning(document.title, MAX_TITLE_CHARS),
        "description": _beginning(document.description, MAX_DESCRIPTION_CHARS),
        "parameter": names,
        "parameter description": details,
    }


class LeanSchema(dict[str, Any]):
    """The parts of a schema that search reads, in place of the schema."""

    __slots__ = ("details", "names")

    def __init__(self, names: str, details: str) -> None:
        super().__init__()
        self.names = names
        self.details = details


def lean(document: ToolDocument) -> ToolDocument:
    """A copy without what search does not read, for caches of many documents."""
    texts = texts_of(document)
    schema = LeanSchema(texts["parameter"], texts["parameter description"])
    names = document.tool_key, document.tool_name, document.server_name
    return ToolDocument(*names, texts["description"], schema, texts["title"])


def _parameter_texts(schema: Mapping[str, Any]) -> tuple[str, str]:
    """The names of all parameters, and their descriptions."""
    if isinstance(schema, LeanSchema):
        return schema.names, schema.details
    parameters = list(islice(_parameters(schema, schema, MAX_DEPTH), MAX_PARAMETERS))
    names, details = " ".join(name for name, _ in parameters), " ".join(text for _, text in parameters)
    return _beginning(names, MAX_NAMES_CHARS), _beginning(details, MAX_DETAILS_CHARS)


def _beginning(text: str, room: int) -> str:
    """The first whole words that fit."""
    return text if len(text) <= room else text[:room].rpartition(" ")[0] or text[:room]


def read(texts: Texts) -> Read:
    """The costly half of preparing a tool. Needs no shared state, so it runs outside the lock."""
    found: dict[str, str] = {}
    tokens: dict[Field, Sequence[str]] = {}
    for field in FIELDS:
        said = [word for word in words(texts[field]) if word not in STOP_WORDS]
        found.update((word, stem(word)) for word in said)
        tokens[field] = [found[word] for word in (dict.fromkeys(said) if field in COUNTED_ONCE else said)]
    tokens["title"] = [token for token in tokens["title"] if token not in tokens["name"]]  # most repeat the name
    return Read(tokens, found, kind_of_tool(words(texts["name"])))


def prepare(tool: Read, vocabulary: Vocabulary) -> Prepared:
    import numpy as np

    counts: dict[int, int] = {}
    fields: dict[int, int] = {}
    for bit, (field, weight) in enumerate(WEIGHTS.items()):
        for token in tool.tokens[field]:
            word = vocabulary.number(token)
            counts[word] = counts.get(word, 0) + weight
            fields[word] = fields.get(word, 0) | 1 << bit
    vocabulary.note_words(tool.words)
    return Prepared(
        np.fromiter(counts, np.int32, len(counts)),
        np.fromiter(counts.values(), np.int32, len(counts)),
        np.fromiter(fields.values(), np.uint8, len(counts)),
        tool.kind,
    )


def embeddable_texts(texts: Texts) -> tuple[str, str]:
    """The texts to embed: a tool's purpose, which is its name and first sentence, and all of its texts.

    Without CJK, which the model hardly covers; both empty if that is most of the text.
    """
    name, server, parameters = (_BOUNDARY.sub(" ", calm(texts[field])) for field in ("name", "server", "parameter"))
    title, description, details = (calm(texts[field]) for field in ("title", "description", "parameter description"))
    whole = without_cjk(_joined(name, server, title, description, parameters, details)[:MAX_MEANING_CHARS])
    purpose = _joined(name, title, next(iter(sentences(description)), "")[:MAX_PURPOSE_CHARS])
    return (without_cjk(purpose), whole) if whole else ("", "")


def _joined(*parts: str) -> str:
    return " ".join(filter(None, map(str.strip, parts)))


def _parameters(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Iterator[tuple[str, str]]:
    """Names and descriptions, including those inside objects and lists."""
    for name, inner in parameters_of(schema, root).properties.items():
        description = inner.get("description") if isinstance(inner, dict) else None
        yield name[:MAX_PARAMETER_CHARS], description[:MAX_PARAMETER_CHARS] if isinstance(description, str) else ""
        if isinstance(inner, dict) and depth > 1:
            yield from _parameters(inner, root, depth - 1)
    items = schema.get("items")
    if isinstance(items, dict) and depth > 1:
        yield from _parameters(items, root, depth - 1)


KEPT_CONTENTS = 1_000  # at least, about 2 KB each: tools that may come back, as those of a server that restarts
EMBEDDED_AT_ONCE = 256
MAX_WORDS = 100_000  # of the vocabulary; beyond it, all is prepared anew. 10,000 real tools have about 20,000


class PreparedTools:
    """A cache of prepared tools, shared by threads: by a document's identity, and by its content.

    It keeps the contents used last: `kept`, or twice as many as there are documents, so that all may come back.
    """

    def __init__(self, kept: int = KEPT_CONTENTS) -> None:
        self.vocabulary = Vocabulary()
        self._kept = kept
        self._by_document: WeakKeyDictionary[ToolDocument, Prepared] = WeakKeyDictionary()
        self._by_content: OrderedDict[bytes, Prepared] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def full(self) -> bool:
        return len(self.vocabulary) > MAX_WORDS

    def knows(self, tool: ToolDocument) -> bool:
        return tool in self._by_document

    def prepared(self, tool: ToolDocument) -> Prepared:
        with self._lock:
            known = self._by_document.get(tool)
        if known is not None:
            return known
        texts = texts_of(tool)
        content = _digest(texts)
        # Outside the lock: a search over thousands of new tools must not block the others.
        tool_read = None if content in self._by_content else read(texts)
        with self._lock:
            prepared = self._by_document[tool] = self._of_content(content, texts, tool_read)
            return prepared

    def vectors(
        self, tools: Sequence[ToolDocument], prepared: Sequence[Prepared], embedder: Embedder
    ) -> NDArray[np.float32]:
        import numpy as np

        missing = [place for place, known in enumerate(prepared) if known.vector is None]
        for start in range(0, len(missing), EMBEDDED_AT_ONCE):
            places = missing[start : start + EMBEDDED_AT_ONCE]
            pairs = [embeddable_texts(texts_of(tools[place])) for place in places]
            purposes, wholes = (unit(embedder.sums(texts)) for texts in zip(*pairs, strict=True))
            made = unit(purposes + WHOLE_WEIGHT * wholes)
            for place, vector in zip(places, made, strict=True):
                prepared[place].vector = vector.astype(np.float16)  # a copy: a view would keep the vectors of all
        vectors: NDArray[np.float32] = np.array([known.vector for known in prepared], dtype=np.float32)
        return vectors

    def _of_content(self, content: bytes, texts: Texts, tool: Read | None) -> Prepared:
        prepared = self._by_content.get(content)
        if prepared is None:  # if it was evicted in the meantime, it is read again
            prepared = self._by_content[content] = prepare(tool or read(texts), self.vocabulary)
            while len(self._by_content) > max(self._kept, 2 * len(self._by_document)):
                self._by_content.popitem(last=False)
        self._by_content.move_to_end(content)
        return prepared


def _digest(texts: Texts) -> bytes:
    return blake2b("\0".join(texts[field] for field in FIELDS).encode("utf-8", "replace"), digest_size=16).digest()
