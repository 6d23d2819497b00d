"""Tools as search sees them: the tokens of each of their fields, prepared once for each content."""

from __future__ import annotations

import os
import re
import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakKeyDictionary

import msgspec

from pointsman.providers.base import ToolDocument
from pointsman.providers.bm25.actions import Kind, kind_of_tool
from pointsman.providers.bm25.spelling import is_correctable
from pointsman.providers.disk_cache import DiskCache
from pointsman.providers.embeddings import Embedder, stored_vector, unit
from pointsman.providers.schema import is_plain, properties_of
from pointsman.providers.text import calm, in_one_word, sentences, without_cjk, words, words_with_tokens

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
TextsOf = Callable[[ToolDocument], Texts]


class Read(msgspec.Struct, frozen=True, array_like=True):
    """What is read of a tool's texts: its tokens, each once, in arrays of the same length. Also the form on disk."""

    tokens: list[str]
    counts: bytes  # of int32, weighted: as if each field occurred as often as it weighs
    fields: bytes  # that have the token, a bit for each
    words: dict[str, int]  # that can stand for a misspelt one, each with the place of its token
    kind: Kind | None  # whether it reads or writes, by its name


class Vocabulary:
    """Numbers for tokens, and the words that they come from. Only grows, so that numbers stay comparable."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._words: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def get(self, token: str) -> int | None:
        return self._numbers.get(token)

    def add(self, tool: Read) -> list[int]:
        """Note the words of a tool; return the numbers of its tokens."""
        number = self._numbers.setdefault
        numbers = [number(token, len(self._numbers)) for token in tool.tokens]
        self._words.update((word, numbers[place]) for word, place in tool.words.items())
        return numbers

    def words(self) -> dict[str, int]:
        """The words with the numbers of their tokens, as they are now: other threads may add some meanwhile."""
        return self._words.copy()


class Prepared(msgspec.Struct, eq=False):
    """The tokens of one tool, each once: a row of their numbers, of their counts and of their fields."""

    tokens: NDArray[np.int32]  # one array, as each has 100 bytes of its own
    kind: Kind | None  # whether it reads or writes, by its name
    content: bytes  # its digest
    vector: NDArray[np.float16] | None = None  # the embedding; computed when it is first needed

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
    found: dict[str, str] = {}  # the words with their tokens
    counts: dict[str, int] = {}
    fields: dict[str, int] = {}
    for bit, (field, weight) in enumerate(WEIGHTS.items()):
        said = words_with_tokens(in_one_word(texts[field]))
        found.update(said)
        tokens = list(dict(said).values()) if field in COUNTED_ONCE else [token for _, token in said]
        if field == "title":  # most repeat the name
            tokens = [token for token in tokens if not fields.get(token, 0) & IN_NAME]
        for token in tokens:
            counts[token] = counts.get(token, 0) + weight
        for token in set(tokens):
            fields[token] = fields.get(token, 0) | 1 << bit
    places = {token: place for place, token in enumerate(counts)}
    known = {word: places[token] for word, token in found.items() if is_correctable(word)}
    in_fields = bytes([fields[token] for token in counts])
    kind = kind_of_tool(words(texts["name"]))
    return Read(list(counts), array("i", counts.values()).tobytes(), in_fields, known, kind)


def prepare(content: bytes, tool: Read, vocabulary: Vocabulary) -> Prepared:
    import numpy as np

    tokens = np.empty((3, len(tool.tokens)), np.int32)
    tokens[0] = vocabulary.add(tool)
    tokens[1] = np.frombuffer(tool.counts, np.int32)
    tokens[2] = np.frombuffer(tool.fields, np.uint8)
    return Prepared(tokens, tool.kind, content)


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
    for name, inner in properties_of(schema, root).items():
        description = inner.get("description") if isinstance(inner, dict) else None
        yield name[:MAX_PARAMETER_CHARS], description[:MAX_PARAMETER_CHARS] if isinstance(description, str) else ""
        if isinstance(inner, dict) and depth > 1 and not is_plain(inner):
            yield from _parameters(inner, root, depth - 1)
    items = schema.get("items")
    if isinstance(items, dict) and depth > 1:
        yield from _parameters(items, root, depth - 1)


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
        self._unsaved: dict[bytes, bytes] = {}
        self._by_document: WeakKeyDictionary[ToolDocument, Prepared] = WeakKeyDictionary()
        self._by_content: OrderedDict[bytes, Prepared] = OrderedDict()
        self._lock = threading.Lock()

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
        for start in range(0, len(tools), PREPARED_AT_ONCE):
            block = tools[start : start + PREPARED_AT_ONCE]
            disk, texts = self._disk if in_thread else None, cache(texts_of)
            self._add([tool for tool in block if not self.knows(tool)], texts, disk)
            if embedder is not None:
                self._embed({self._by_document[tool]: tool for tool in block}, texts, embedder, disk)
        return [self._by_document[tool] for tool in tools]

    def vectors(
        self, tools: Sequence[ToolDocument], prepared: Sequence[Prepared], embedder: Embedder
    ) -> NDArray[np.float32]:
        import numpy as np

        self._embed(dict(zip(prepared, tools, strict=True)), texts_of, embedder, None)
        vectors: NDArray[np.float32] = np.array([known.vector for known in prepared], dtype=np.float32)
        return vectors

    def save(self) -> None:
        """Write to the disk what was prepared since the last time; only in a thread."""
        with self._lock:
            unsaved, self._unsaved = self._unsaved, {}
        if unsaved and self._disk is not None:
            self._disk.put(unsaved)

    def _add(self, tools: Sequence[ToolDocument], texts: TextsOf, disk: DiskCache | None) -> None:
        # Outside the lock: a search over thousands of new tools must not block the others.
        contents = [_digest(tool) for tool in tools]
        missing = {
            content: tool for content, tool in zip(contents, tools, strict=True) if content not in self._by_content
        }
        found = _stored_tools(disk, missing) if disk is not None else {}
        fresh = {content: read(texts(tool)) for content, tool in missing.items() if content not in found}
        found |= fresh
        with self._lock:
            for tool, content in zip(tools, contents, strict=True):
                self._by_document[tool] = self._of_content(content, tool, found.get(content))
            if disk is not None:
                self._unsaved |= {_key(content): _encode(each) for content, each in fresh.items()}

    def _embed(
        self, tools: Mapping[Prepared, ToolDocument], texts: TextsOf, embedder: Embedder, disk: DiskCache | None
    ) -> None:
        import numpy as np

        fresh = [known for known in tools if known.vector is None]
        model: str = getattr(embedder, "model_id", "")
        if disk is not None and model and fresh:  # without an id, the vectors could be of another model
            _load_vectors(disk, fresh, model, embedder.sums([]).shape[1])
            fresh = [known for known in fresh if known.vector is None]
        for start in range(0, len(fresh), EMBEDDED_AT_ONCE):
            block = fresh[start : start + EMBEDDED_AT_ONCE]
            pairs = [embeddable_texts(texts(tools[known])) for known in block]
            purposes, wholes = (unit(embedder.sums(each)) for each in zip(*pairs, strict=True))
            for known, vector in zip(block, unit(purposes + WHOLE_WEIGHT * wholes), strict=True):
                known.vector = vector.astype(np.float16)  # a copy: a view would keep the vectors of all
        if disk is not None and model:
            made = {_key(known.content, model): known.vector.tobytes() for known in fresh if known.vector is not None}
            with self._lock:
                self._unsaved |= made

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
    content = (tool.tool_name, tool.server_name, tool.title, tool.description, schema)
    try:
        encoded = _encode(content)
    except (ValueError, TypeError, OverflowError, RecursionError):  # half a surrogate pair, a huge number, too deep
        encoded = "\0".join(texts_of(tool).values()).encode("utf-8", "replace")
    return blake2b(encoded, digest_size=16).digest()


# On disk

_PREPARING = (
    *(("pointsman.providers.bm25", name) for name in ("documents.py", "actions.py", "spelling.py")),
    *(("pointsman.providers", name) for name in ("embeddings.py", "schema.py", "text.py", "word_forms.py")),
    ("snowballstemmer", "english_stemmer.py"),
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


def _load_vectors(disk: DiskCache, tools: Iterable[Prepared], model: str, dimensions: int) -> None:
    keys = {_key(known.content, model): known for known in tools}
    for key, data in disk.get(list(keys)).items():
        keys[key].vector = stored_vector(data, dimensions)
