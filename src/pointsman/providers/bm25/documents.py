"""Tools as search sees them: the tokens of each of their fields, prepared once for each content."""

from __future__ import annotations

import os
import re
import threading
from array import array
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import cache, lru_cache, partial
from hashlib import blake2b
from importlib.resources import files
from itertools import count
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakKeyDictionary

import msgspec

from pointsman.providers.base import ToolDocument
from pointsman.providers.bm25.actions import Kind, is_deprecated, kind_of_tool
from pointsman.providers.bm25.spelling import is_correctable
from pointsman.providers.disk_cache import DiskCache
from pointsman.providers.embeddings import Embedder, stored_vectors, unit
from pointsman.providers.schema import is_plain, properties_of
from pointsman.providers.stemmer import stemmers_folder
from pointsman.providers.text import (
    calm,
    first_sentence,
    in_one_word,
    is_plural,
    with_tokens,
    without_cjk,
    words,
    words_with_tokens,
)

if TYPE_CHECKING:  # numpy is heavy: it comes with the first search, not with the gateway
    import numpy as np
    from numpy.typing import NDArray

    from pointsman.providers.tool_vectors import ToolVectors

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
PLURAL = 1 << len(FIELDS)  # a bit more, for a word that the name has in the plural: `list_issues`
# The bit of each field, and what one of its tokens adds to a figure that has the count above the bits.
_FIELD_BITS = len(FIELDS) + 1
_FIELDS_MASK = (1 << _FIELD_BITS) - 1
_UNITS: Mapping[Field, tuple[int, int]] = {
    field: (1 << place, WEIGHTS[field] << _FIELD_BITS) for place, field in enumerate(FIELDS)
}
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
EXAMPLE_SHARE = 0.85  # of the cosine of an example request, as in `ToolVectors`

_SEPARATORS = re.compile(r"[_\-.:/]+")
_BOUNDARY = re.compile(rf"{_SEPARATORS.pattern}|(?<=[a-z0-9])(?=[A-Z])")

Texts = Mapping[Field, str]


class Read(msgspec.Struct, frozen=True, array_like=True):
    """What is read of a tool's texts: its tokens, each once, in arrays of the same length. Also the form on disk."""

    tokens: list[str]
    counts: bytes  # of int32, weighted: as if each field occurred as often as it weighs
    fields: bytes  # that have the token, a bit for each
    words: dict[str, int]  # that can stand for a misspelt one, each with the place of its token
    kind: Kind | None  # whether it reads or writes, by its name
    deprecated: bool


class Vocabulary:
    """Numbers for tokens, and the words that they come from. Only grows, so that numbers stay comparable."""

    def __init__(self) -> None:
        self._numbers: defaultdict[str, int] = defaultdict(count().__next__)
        self._words: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def get(self, token: str) -> int | None:
        return self._numbers.get(token)

    def add(self, tool: Read) -> list[int]:
        """Note the words of a tool; return the numbers of its tokens."""
        of_token, of_word = self._numbers, self._words
        numbers = [of_token[token] for token in tool.tokens]
        for word, place in tool.words.items():
            if word not in of_word:
                of_word[word] = numbers[place]
        return numbers

    def words(self) -> dict[str, int]:
        """The words with the numbers of their tokens, as they are now: other threads may add some meanwhile."""
        return self._words.copy()


class Prepared(msgspec.Struct, eq=False):
    """The tokens of one tool, each once: a row of their numbers, of their counts and of their fields."""

    tokens: NDArray[np.int32]  # one array, as each has 100 bytes of its own
    kind: Kind | None  # whether it reads or writes, by its name
    deprecated: bool
    content: bytes  # its digest
    # The embeddings of its texts and of each of its example requests, a row each; computed when first needed.
    vectors: NDArray[np.float16] | None = None

    @property
    def words(self) -> NDArray[np.int32]:
        words: NDArray[np.int32] = self.tokens[0]
        return words

    @property
    def counts(self) -> NDArray[np.int32]:
        """Weighted: as if each field occurred as often as it weighs."""
        counts: NDArray[np.int32] = self.tokens[1]
        return counts

    @property
    def fields(self) -> NDArray[np.int32]:
        """That have the word, a bit for each."""
        fields: NDArray[np.int32] = self.tokens[2]
        return fields

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
    return msgspec.structs.replace(
        document, description=texts["description"], input_schema=schema, title=texts["title"]
    )


def _parameter_texts(schema: Mapping[str, Any]) -> tuple[str, str]:
    """The names of all parameters, and their descriptions."""
    if isinstance(schema, LeanSchema):
        return schema.names, schema.details
    names: list[str] = []
    details: list[str] = []
    _add_parameters(names, details, schema, schema, MAX_DEPTH)
    return _beginning(" ".join(names), MAX_NAMES_CHARS), _beginning(" ".join(details), MAX_DETAILS_CHARS)


def _beginning(text: str, room: int) -> str:
    """The first whole words that fit."""
    return text if len(text) <= room else text[:room].rpartition(" ")[0] or text[:room]


def read(texts: Texts) -> Read:
    """The costly half of preparing a tool. Needs no shared state, so it runs outside the lock."""
    found: dict[str, str] = {}  # the words with their tokens
    seen: dict[str, int] = {}  # for each token its count, above the bits of its fields
    name = words(in_one_word(texts["name"]))
    for field, (bit, unit_count) in _UNITS.items():
        said: Iterable[tuple[str, str]] = (
            with_tokens(name) if field == "name" else words_with_tokens(in_one_word(texts[field]))
        )
        if field in COUNTED_ONCE:
            said = dict(said).items()
        in_title = field == "title"
        for word, token in said:
            found[word] = token
            before = seen.get(token, 0)
            if not in_title or not before & IN_NAME:  # most titles repeat the name
                seen[token] = before + unit_count | bit
    for word, token in with_tokens(name):
        if is_plural(word):
            seen[token] |= PLURAL
    places = dict(zip(seen, count()))
    known = {word: places[token] for word, token in found.items() if _is_correctable(word)}
    counts = array("i", [each >> _FIELD_BITS for each in seen.values()])
    fields = bytes([each & _FIELDS_MASK for each in seen.values()])
    return Read(list(seen), counts.tobytes(), fields, known, kind_of_tool(name), is_deprecated(texts["description"]))


_is_correctable = lru_cache(maxsize=8_192)(is_correctable)  # the same words come again and again


def prepare(content: bytes, tool: Read, vocabulary: Vocabulary) -> Prepared:
    import numpy as np

    # Bytes first: from a list, numpy would take three times as long.
    rows = array("i", vocabulary.add(tool)).tobytes() + tool.counts + array("i", [*tool.fields]).tobytes()
    return Prepared(np.frombuffer(rows, np.int32).reshape(3, -1), tool.kind, tool.deprecated, content)


def embeddable_texts(texts: Texts) -> tuple[str, str]:
    """The texts to embed: a tool's purpose, which is its name and first sentence, and all of its texts.

    Without CJK, which the model hardly covers; both empty if that is most of the text.
    """
    name, server, parameters = (_spaced(calm(texts[field])) for field in ("name", "server", "parameter"))
    title, description, details = (calm(texts[field]) for field in ("title", "description", "parameter description"))
    whole = without_cjk(_joined(name, server, title, description, parameters, details)[:MAX_MEANING_CHARS])
    purpose = _joined(name, title, first_sentence(description)[:MAX_PURPOSE_CHARS])
    return (without_cjk(purpose), whole) if whole else ("", "")


def _spaced(names: str) -> str:
    """Names with spaces between their words."""
    return (_SEPARATORS if names.islower() else _BOUNDARY).sub(" ", names)


def _joined(*parts: str) -> str:
    return " ".join(filter(None, map(str.strip, parts)))


def _add_parameters(
    names: list[str], details: list[str], schema: Mapping[str, Any], root: Mapping[str, Any], depth: int
) -> None:
    """Add names and descriptions, including those inside objects and lists, until there are MAX_PARAMETERS."""
    for name, inner in properties_of(schema, root).items():
        if len(names) >= MAX_PARAMETERS:
            return
        description = inner.get("description") if isinstance(inner, dict) else None
        names.append(name[:MAX_PARAMETER_CHARS])
        details.append(description[:MAX_PARAMETER_CHARS] if isinstance(description, str) else "")
        if isinstance(inner, dict) and depth > 1 and not is_plain(inner):
            _add_parameters(names, details, inner, root, depth - 1)
    items = schema.get("items")
    if isinstance(items, dict) and depth > 1 and len(names) < MAX_PARAMETERS:
        _add_parameters(names, details, items, root, depth - 1)


Unsaved = tuple[bytes, str, Callable[[], bytes]]
"""A content, the model or nothing, and what the file keeps for them: it is encoded when it is written."""

KEPT_CONTENTS = 1_000  # at least, about 2 KB each: tools that may come back, as those of a server that restarts
PREPARED_AT_ONCE = 1_000
EMBEDDED_AT_ONCE = 256
MAX_WORDS = 100_000  # of the vocabulary; beyond it, all is prepared anew. 10,000 real tools have about 20,000


class PreparedTools:
    """A cache of prepared tools, shared by threads: by a document's identity, and by its content.

    It keeps the contents used last: `kept`, or twice as many as there are documents, so that all may come back.
    `disk` has what earlier runs prepared.
    """

    def __init__(self, kept: int = KEPT_CONTENTS, disk: DiskCache | None = None) -> None:
        self.vocabulary = Vocabulary()
        self._kept = kept
        self._disk = disk
        self._unsaved: list[Unsaved] = []
        self._by_document: WeakKeyDictionary[ToolDocument, Prepared] = WeakKeyDictionary()
        self._by_content: OrderedDict[bytes, Prepared] = OrderedDict()
        self._lock = threading.Lock()
        self._preparing = threading.Lock()  # of one block, by threads that prepare many tools

    def emptied(self) -> PreparedTools:
        """A new cache over the same file."""
        return PreparedTools(self._kept, self._disk)

    @property
    def full(self) -> bool:
        return len(self.vocabulary) > MAX_WORDS

    @property
    def unsaved(self) -> bool:
        """Whether there is something to write to the disk."""
        return bool(self._unsaved)

    def knows(self, tool: ToolDocument) -> bool:
        return tool in self._by_document

    def prepared(self, tool: ToolDocument) -> Prepared:
        return self.prepared_all([tool])[0]

    def prepared_all(
        self, tools: Sequence[ToolDocument], embedder: Embedder | None = None, *, in_thread: bool = False
    ) -> list[Prepared]:
        """With an embedder they have their vectors, too. The disk is used only in a thread of its own."""
        disk, alone = (self._disk, self._preparing) if in_thread else (None, nullcontext())
        prepared: list[Prepared] = []
        for start in range(0, len(tools), PREPARED_AT_ONCE):
            with alone:  # two threads with the same tools would prepare each of them twice
                prepared += self._prepared_block(tools[start : start + PREPARED_AT_ONCE], embedder, disk)
        return prepared

    def _prepared_block(
        self, tools: Sequence[ToolDocument], embedder: Embedder | None, disk: DiskCache | None
    ) -> list[Prepared]:
        found = [self._by_document.get(tool) for tool in tools]
        texts: dict[ToolDocument, Texts] = {}  # read once, for words and vectors
        added = iter(self._add([tool for tool, known in zip(tools, found, strict=True) if known is None], texts, disk))
        prepared = [known or next(added) for known in found]
        if embedder is not None:
            self._embed(tools, prepared, texts, embedder, disk)
        return prepared

    def vectors(self, tools: Sequence[ToolDocument], prepared: Sequence[Prepared], embedder: Embedder) -> ToolVectors:
        from pointsman.providers.tool_vectors import ToolVectors

        self._embed(tools, prepared, {}, embedder, None)
        return ToolVectors.of([known.vectors for known in prepared if known.vectors is not None], EXAMPLE_SHARE)

    def save(self) -> None:
        """Write to the disk what was prepared since the last time; only in a thread."""
        with self._lock:
            unsaved, self._unsaved = self._unsaved, []
        if unsaved and self._disk is not None:
            self._disk.put({_key(content, model): value() for content, model, value in unsaved})

    def _add(
        self, tools: Sequence[ToolDocument], texts: dict[ToolDocument, Texts], disk: DiskCache | None
    ) -> list[Prepared]:
        # Outside the lock: a search over thousands of new tools must not block the others.
        contents = [_digest(tool) for tool in tools]
        missing = {
            content: tool for content, tool in zip(contents, tools, strict=True) if content not in self._by_content
        }
        found = _stored_tools(disk, missing) if disk is not None and missing and not disk.is_new else {}
        fresh = {content: tool for content, tool in missing.items() if content not in found}
        texts.update((tool, texts_of(tool)) for tool in fresh.values())
        reads = {content: read(texts[tool]) for content, tool in fresh.items()}
        found |= reads
        prepared: list[Prepared] = []
        with self._lock:
            for tool, content in zip(tools, contents, strict=True):
                known = self._by_document[tool] = self._of_content(content, tool, found.get(content))
                prepared.append(known)
            if disk is not None:
                self._unsaved += [(content, "", partial(_encode, each)) for content, each in reads.items()]
        return prepared

    def _embed(
        self,
        tools: Sequence[ToolDocument],
        prepared: Sequence[Prepared],
        texts: Mapping[ToolDocument, Texts],
        embedder: Embedder,
        disk: DiskCache | None,
    ) -> None:
        import numpy as np

        fresh = {known: tool for known, tool in zip(prepared, tools, strict=True) if known.vectors is None}
        model: str = getattr(embedder, "model_id", "")
        if disk is not None and model and fresh and not disk.is_new:  # without an id: they may be of another model
            _load_vectors(disk, fresh, model, embedder.sums([]).shape[1])
            fresh = {known: tool for known, tool in fresh.items() if known.vectors is None}
        pending = list(fresh.items())
        for start in range(0, len(pending), EMBEDDED_AT_ONCE):
            block = pending[start : start + EMBEDDED_AT_ONCE]
            purposes, wholes = zip(
                *(embeddable_texts(texts.get(tool) or texts_of(tool)) for _, tool in block), strict=True
            )
            sums = unit(embedder.sums([*purposes, *wholes]))
            own = unit(sums[: len(block)] + WHOLE_WEIGHT * sums[len(block) :]).astype(np.float16)
            for (known, tool), vector in zip(block, own, strict=True):
                vectors = vector[None, :].copy()  # a view would keep the vectors of all
                if tool.examples:
                    examples = unit(embedder.sums([without_cjk(calm(example)) for example in tool.examples]))
                    vectors = np.concatenate([vectors, examples.astype(np.float16)])
                known.vectors = vectors
        if disk is not None and model:
            with self._lock:
                self._unsaved += [
                    (known.content, model, known.vectors.tobytes) for known in fresh if known.vectors is not None
                ]

    def _of_content(self, content: bytes, tool: ToolDocument, tool_read: Read | None) -> Prepared:
        prepared = self._by_content.get(content)
        if prepared is None:  # if it was evicted in the meantime, it is read again
            tool_read = tool_read or read(texts_of(tool))
            prepared = self._by_content[content] = prepare(content, tool_read, self.vocabulary)
            while len(self._by_content) > max(self._kept, 2 * len(self._by_document)):
                self._by_content.popitem(last=False)
        self._by_content.move_to_end(content)
        return prepared


def _digest(tool: ToolDocument) -> bytes:
    """Of all that is read of a tool. The whole schema is quicker to hash than to read."""
    schema: object = tool.input_schema
    if isinstance(schema, LeanSchema):
        schema = [schema.names, schema.details]
    content = (tool.tool_name, tool.server_name, tool.title, tool.description, schema, tool.examples)
    try:
        encoded = _encode(content)
    except (ValueError, TypeError, OverflowError, RecursionError):  # half a surrogate pair, a huge number, too deep
        encoded = "\0".join((*texts_of(tool).values(), *tool.examples)).encode("utf-8", "replace")
    return blake2b(encoded, digest_size=16).digest()


# On disk

_PREPARING = (
    *(("pointsman.providers.bm25", name) for name in ("documents.py", "actions.py", "spelling.py")),
    *(("pointsman.providers", name) for name in ("embeddings.py", "schema.py", "text.py", "word_forms.py")),
)
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Read).decode


def _key(content: bytes, model: str = "") -> bytes:
    return blake2b(content + model.encode(), key=_version(), digest_size=16).digest()


@cache
def _version() -> bytes:
    """Of the code that prepares tools, so that no change of it leaves outdated entries in use."""
    sources = blake2b(digest_size=32)
    try:
        for package, name in _PREPARING:
            sources.update(files(package).joinpath(name).read_bytes())
        sources.update((stemmers_folder() / "english_stemmer.py").read_bytes())
    except OSError:  # installed without its sources: nothing is found after a restart
        return os.urandom(32)
    return sources.digest()


def _stored_tools(disk: DiskCache, contents: Iterable[bytes]) -> dict[bytes, Read]:
    keys = {_key(content): content for content in contents}
    found = {keys[key]: _read_stored(data) for key, data in disk.get(list(keys)).items()}
    return {content: tool for content, tool in found.items() if tool is not None}


def _read_stored(data: bytes) -> Read | None:
    """None for anything but a tool: another one would spoil the scores."""
    try:
        tool = _decode(data)
    except msgspec.DecodeError:
        return None
    size = len(tool.tokens)
    fits = (
        len(tool.counts) == 4 * size and len(tool.fields) == size and all(0 <= at < size for at in tool.words.values())
    )
    return tool if fits else None


def _load_vectors(disk: DiskCache, tools: Mapping[Prepared, ToolDocument], model: str, dimensions: int) -> None:
    keys = {_key(known.content, model): known for known in tools}
    for key, data in disk.get(list(keys)).items():
        known = keys[key]
        known.vectors = stored_vectors(data, 1 + len(tools[known].examples), dimensions)
