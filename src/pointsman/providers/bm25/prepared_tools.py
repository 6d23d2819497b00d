"""What is known about tools: their tokens and vectors, made once for each content."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from pointsman.providers.base import ToolDocument
from pointsman.providers.bm25.documents import (
    FIELDS,
    Prepared,
    Texts,
    Tokens,
    Vocabulary,
    meaning_of,
    prepare,
    texts_of,
    tokens_by_field,
)
from pointsman.providers.embeddings import Embedder, unit

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

KEPT_CONTENTS = 20_000  # tools that may come back: a server that is away for a while, a list that is read again
EMBEDDED_AT_ONCE = 256
MAX_WORDS = 500_000  # beyond it, start again


class PreparedTools:
    """Shared by threads. The same document is known by its identity, an equal one by its content."""

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
        # Outside the lock: whoever reads thousands of new tools must not keep all others waiting.
        found = None if content in self._by_content else tokens_by_field(texts)
        with self._lock:
            prepared = self._by_document[tool] = self._of_content(content, texts, found)
            return prepared

    def vectors(
        self, tools: Sequence[ToolDocument], prepared: Sequence[Prepared], embedder: Embedder
    ) -> NDArray[np.float32]:
        import numpy as np

        missing = [place for place, known in enumerate(prepared) if known.vector is None]
        for start in range(0, len(missing), EMBEDDED_AT_ONCE):
            places = missing[start : start + EMBEDDED_AT_ONCE]
            made = unit(embedder.sums([meaning_of(texts_of(tools[place])) for place in places]))
            for place, vector in zip(places, made.astype(np.float16), strict=True):
                prepared[place].vector = vector
        vectors: NDArray[np.float32] = np.array([known.vector for known in prepared], dtype=np.float32)
        return vectors

    def _of_content(self, content: bytes, texts: Texts, found: Tokens | None) -> Prepared:
        prepared = self._by_content.get(content)
        if prepared is None:
            if found is None:  # forgotten since we looked
                found = tokens_by_field(texts)
            prepared = self._by_content[content] = prepare(found, self.vocabulary)
            if len(self._by_content) > self._kept:
                self._by_content.popitem(last=False)
        self._by_content.move_to_end(content)
        return prepared


def _digest(texts: Texts) -> bytes:
    return blake2b("\0".join(texts[field] for field in FIELDS).encode("utf-8", "replace"), digest_size=16).digest()
