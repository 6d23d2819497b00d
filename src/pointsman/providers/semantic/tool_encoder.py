"""Compares requests with tools by the sentence encoder. The vectors of tools come from memory, from disk, or from a
background thread; until all tools of a list have one, the list is ranked without them."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from pointsman.providers.base import ToolDocument
from pointsman.providers.bm25.documents import texts_of
from pointsman.providers.semantic import encoder as minilm
from pointsman.providers.semantic.encoder import EncoderUnavailableError, SentenceEncoder
from pointsman.providers.semantic.vector_store import VectorStore
from pointsman.providers.text import calm, without_cjk

if TYPE_CHECKING:  # numpy is heavy: it is loaded with the first search, not with the gateway
    import numpy as np
    from numpy.typing import NDArray

    from pointsman.providers.bm25.query import Query
    from pointsman.providers.tool_vectors import ToolVectors

logger = logging.getLogger(__name__)

MAX_TOOL_TOKENS = 128
# What a request may cost: about 14 ms of CPU for 48 tokens.
MAX_QUERY_TOKENS = 48
MAX_REQUEST_TOKENS = 480  # of all queries together
# Cosines: of texts that have nothing in common, and the least that counts in full even if no tool reaches more.
UNRELATED = 0.1
RELATED = 0.4
EXAMPLE_SHARE = 0.7  # of the cosine of an example request, as in `ToolVectors`
KEPT_LISTS = 16
KEPT_TOOLS = 20_000  # in all of them together
_AT_ONCE = 32  # tools between two writes to the disk
_CLOSE_S = 5.0
_BOUNDARY = re.compile(r"[_\-.:/]+|(?<=[a-z0-9])(?=[A-Z])")  # between the words of an identifier

Tools = tuple[ToolDocument, ...]


@dataclass(frozen=True, slots=True)
class SentenceMatch:
    """How well each tool matches a query by the sentence of it that it matches best."""

    shares: NDArray[np.float32]  # of the best tool for that sentence: every step of a request has its own best
    cosines: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class EncodedTools:
    """The vectors of the tools of one list, and the encoder for requests."""

    vectors: ToolVectors
    encoder: SentenceEncoder

    def match(self, queries: Sequence[Query]) -> list[SentenceMatch | None]:
        """For each query; None: it has nothing to compare."""
        asked = sum(bool(query.sentences) for query in queries)
        room = min(MAX_QUERY_TOKENS, MAX_REQUEST_TOKENS // max(1, asked))
        return [self._match(query, room) for query in queries]

    def _match(self, query: Query, room: int) -> SentenceMatch | None:
        import numpy as np

        sentences = self.encoder.encode_sentences(query.sentences, room)
        if not len(sentences):
            return None
        cosines = self.vectors.cosines(sentences).T
        above = np.maximum(cosines - UNRELATED, 0)
        shares = above / np.maximum(above.max(axis=0), RELATED - UNRELATED)
        return SentenceMatch(shares.max(axis=1), cosines.max(axis=1))


class ToolEncoder:
    def __init__(
        self,
        wanted: bool | Callable[[], bool],
        store: VectorStore | None = None,  # None: in memory only
        load: Callable[[], SentenceEncoder] = minilm.load,
    ) -> None:
        self._wanted = wanted
        self._store = store
        self._load = load
        self._encoder: SentenceEncoder | None = None
        self.failed = False  # for the rest of the process
        self._lists: OrderedDict[Tools, EncodedTools] = OrderedDict()
        # Those of a tool's own texts and of its example requests, a row each.
        self._vectors: WeakKeyDictionary[ToolDocument, NDArray[np.float16]] = WeakKeyDictionary()
        self._lock = threading.Lock()  # for all below, and for the vectors
        self._waiting: OrderedDict[Tools, None] = OrderedDict()  # the last one is next
        self._worker: threading.Thread | None = None
        self._closed = False

    @property
    def in_use(self) -> bool:
        wanted = self._wanted() if callable(self._wanted) else self._wanted
        return wanted and not self.failed

    @property
    def missing(self) -> int:
        """How many tools are waiting for their vectors."""
        with self._lock:
            return len({tool for tools in self._waiting for tool in tools if tool not in self._vectors})

    async def encoded(self, tools: Tools) -> EncodedTools | None:
        """None: switched off, not available, or not all vectors are there yet; the background thread adds them."""
        if not self.in_use:
            self._forget()
            return None
        encoded = self._lists.get(tools)
        if encoded is None and self._is_complete(tools):
            encoded = await asyncio.to_thread(self._assemble, tools)
            self._keep(tools, encoded)
        elif encoded is None:
            self._request(tools)
        else:
            self._lists.move_to_end(tools)
        return encoded

    def encode_now(self, tools: Tools) -> EncodedTools:
        """The same at once, for measurements. Raises EncoderUnavailableError."""
        self._waiting[tools] = None
        self._complete(tools)
        return self._assemble(tools)

    def close(self) -> None:
        """End the background thread after the tool at hand."""
        with self._lock:
            self._closed = True
            worker = self._worker
        if worker is not None:
            worker.join(_CLOSE_S)

    # ------------------------------------------------------------------ lists

    def _is_complete(self, tools: Tools) -> bool:
        with self._lock:
            return self._encoder is not None and all(tool in self._vectors for tool in tools)

    def _assemble(self, tools: Tools) -> EncodedTools:
        from pointsman.providers.tool_vectors import ToolVectors

        assert self._encoder is not None
        with self._lock:
            rows = [self._vectors[tool] for tool in tools]
        return EncodedTools(ToolVectors.of(rows, EXAMPLE_SHARE), self._encoder)

    def _keep(self, tools: Tools, encoded: EncodedTools) -> None:
        self._lists[tools] = encoded
        while len(self._lists) > 1 and (len(self._lists) > KEPT_LISTS or sum(map(len, self._lists)) > KEPT_TOOLS):
            self._lists.popitem(last=False)

    def _forget(self) -> None:
        """Free the memory after a switch-off."""
        if self._encoder is None:
            return
        with self._lock:
            self._encoder = None
            self._waiting.clear()
            self._vectors.clear()
        self._lists.clear()

    # ------------------------------------------------------------------ background thread

    def _request(self, tools: Tools) -> None:
        with self._lock:
            self._waiting[tools] = None
            self._waiting.move_to_end(tools)
            while len(self._waiting) > KEPT_LISTS:
                self._waiting.popitem(last=False)
            if self._worker is None and not self._closed:
                self._worker = threading.Thread(target=self._work, name="sentence encoder", daemon=True)
                self._worker.start()

    def _work(self) -> None:
        try:
            while (tools := self._next()) is not None:
                self._complete(tools)
        except EncoderUnavailableError as error:
            self._give_up("search goes on without the sentence encoder: %s", error)
        except Exception as error:  # in a foreign package, or in memory that is not there
            self._give_up("search goes on without the sentence encoder, which failed: %r", error)

    def _next(self) -> Tools | None:
        """The list that was asked for last; None: all are complete, and the thread ends."""
        with self._lock:
            while self._waiting and not self._closed:
                tools = next(reversed(self._waiting))
                if self._encoder is None or any(tool not in self._vectors for tool in tools):
                    return tools
                del self._waiting[tools]
            self._worker = None
            return None

    def _complete(self, tools: Tools) -> None:
        """Add the vectors of a list that are missing, until another list is asked for."""
        import numpy as np

        encoder = self._encoder or self._load()
        with self._lock:
            self._encoder = encoder
            missing = [tool for tool in tools if tool not in self._vectors]
        texts = {tool: _texts(tool) for tool in missing}
        digests = {text: _digest(text, encoder.model_id) for text in chain.from_iterable(texts.values())}
        stored = self._store.get(list(set(digests.values()))) if self._store else {}
        known = {text: stored[digest] for text, digest in digests.items() if digest in stored}

        def add(tools: Sequence[ToolDocument]) -> list[ToolDocument]:
            """Add those of which all texts are known; return the others."""
            added = {tool: np.array([known[text] for text in texts[tool]]) for tool in tools if is_known(tool)}
            with self._lock:
                self._vectors.update(added)
            return [tool for tool in tools if tool not in added]

        def is_known(tool: ToolDocument) -> bool:
            return all(text in known for text in texts[tool])

        rest = add(missing)
        logger.info("sentence encoder: %d tools to encode, %d known", len(rest), len(tools) - len(rest))
        for start in range(0, len(rest), _AT_ONCE):
            made: dict[str, NDArray[np.float16]] = {}
            block = rest[start : start + _AT_ONCE]
            for text in dict.fromkeys(chain.from_iterable(texts[tool] for tool in block)):
                if self._closed:
                    break
                if text not in known:
                    known[text] = made[text] = encoder.encode(text, MAX_TOOL_TOKENS).astype("float16")
            add(block)
            if self._store:
                self._store.put({digests[text]: vector for text, vector in made.items()})
            if self._is_superseded(tools):
                return
        logger.info("sentence encoder: ready for %d tools", len(tools))

    def _is_superseded(self, tools: Tools) -> bool:
        with self._lock:
            return self._closed or next(reversed(self._waiting), None) is not tools

    def _give_up(self, message: str, error: Exception) -> None:
        logger.warning(message, error)
        with self._lock:
            self.failed = True
            self._worker = None
            self._waiting.clear()


def _texts(tool: ToolDocument) -> list[str]:
    """Its own text (names as words, the description, and the names of the parameters) and its example requests.

    A text that is mostly CJK is empty.
    """
    texts = texts_of(tool)
    name, server, parameters = (_BOUNDARY.sub(" ", calm(texts[field])) for field in ("name", "server", "parameter"))
    own = f"{name} {server} {calm(texts['description'])} {parameters}".strip()
    return [without_cjk(text) for text in (own, *map(calm, tool.examples))]


def _digest(text: str, model_id: str) -> bytes:
    content = f"{model_id}\0{MAX_TOOL_TOKENS}\0{text}"
    return blake2b(content.encode("utf-8", "replace"), digest_size=16).digest()
