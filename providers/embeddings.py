"""Static embeddings: texts to vectors, offline and without a network to run. The model ships in the wheel."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pointsman.providers.numeric import load_numpy

if TYPE_CHECKING:  # heavy: loaded with the model
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer


class Embedder(Protocol):
    def sums(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """For each text the sum of the vectors of its tokens; zeros where there is nothing to embed."""
        ...


class EmbeddingsUnavailable(Exception):
    """The model cannot be loaded."""


class StaticEmbeddings:
    def __init__(self, tokenizer: Tokenizer, table: NDArray[np.float16]) -> None:
        self._tokenizer = tokenizer
        self._table = table

    def sums(self, texts: Sequence[str]) -> NDArray[np.float32]:
        import numpy as np

        sums = np.zeros((len(texts), self._table.shape[1]), dtype=np.float32)
        for row, text in enumerate(texts):
            # One by one: a batch starts threads, and a process with threads of the tokenizer's does not fork quietly.
            numbers = self._tokenizer.encode(_encodable(text), add_special_tokens=False).ids
            if numbers:
                self._table[numbers].sum(axis=0, dtype=np.float32, out=sums[row])
        return sums


def _encodable(text: str) -> str:
    """Half a surrogate pair is no character, though JSON lets it through."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Each row with length 1; a row of zeros stays as it is."""
    import numpy as np

    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
    lengths[lengths == 0] = 1
    units: NDArray[np.float32] = vectors / lengths[:, None]
    return units


def load() -> Embedder:
    """The model, the same for all who ask. The first takes about a second.

    Raises:
        EmbeddingsUnavailable: it is not installed or does not load.
    """
    with _loading:
        return _load()


_loading = threading.Lock()


@cache
def _load() -> Embedder:
    try:
        load_numpy()
        with _logging_left_alone():
            import wordllama
        package = Path(wordllama.__file__).parent
        model = wordllama.WordLlama.load(cache_dir=package, disable_download=True)
        model.tokenizer.no_padding()
        _forget_texts(model.tokenizer)
        # The table ships in half precision and is widened by its loader; narrow again it loses nothing but weight.
        return StaticEmbeddings(model.tokenizer, model.embedding.astype("float16"))
    except Exception as error:  # whatever is wrong inside a foreign package, search goes on without it
        raise EmbeddingsUnavailable(f"{type(error).__name__}: {error}") from error


def _forget_texts(tokenizer: Tokenizer) -> None:
    """A whole text is one word to this tokenizer, which keeps the last 10,000 words that it saw: 60 MB for nothing."""
    resize = getattr(tokenizer.model, "_resize_cache", None)
    if resize is not None:
        resize(0)


@contextmanager
def _logging_left_alone() -> Iterator[None]:
    """wordllama sets up logging for the whole process when it is imported, unless somebody has done so."""
    root, somebody = logging.getLogger(), logging.NullHandler()
    root.addHandler(somebody)
    try:
        yield
    finally:
        root.removeHandler(somebody)
