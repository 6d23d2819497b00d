"""Static embeddings: turns texts into vectors offline, without running a neural network. The model is in a wheel."""

from __future__ import annotations

import importlib.util
import json
import mmap
import os
import re
import sys
import threading
from collections.abc import Callable, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # heavy: loaded with the model
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer


# In the folder of wordllama.
_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
_WEIGHTS = "weights/l2_supercat_256.safetensors"
_TENSOR = "embedding.weight"

KEPT_WORDS = 8_192  # with their tokens, about 200 bytes each
_KEPT_CHARS = 24  # of a word; longer ones seldom come again
_TEXTS_AT_ONCE = 512
_SQUARES = (0.8, 1.2)  # of the length of a vector of length 1, rounding included
_WORDS = re.compile(" ( *[^ ]+)")  # a word with the spaces before it, except one
_MARKS = ("<s>", "</s>", "<unk>")  # single tokens wherever they are, which the tokenizer finds before anything else


class Embedder(Protocol):
    def sums(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """For each text the sum of the vectors of its tokens; zeros if it has none."""
        ...


class EmbeddingsUnavailableError(Exception):
    """The model cannot be loaded."""


class StaticEmbeddings:
    """The tokens of a word do not depend on the words around it, so they are kept: most words come again and again."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        table: NDArray[np.float16],
        mapping: mmap.mmap | None = None,
        model_id: str = "",
    ) -> None:
        """`mapping`: the file that holds the table, if it is not in memory."""
        self.model_id = model_id  # another one for other vectors; empty: not known
        self._tokenizer = tokenizer
        self._table = table
        self._mapping = mapping
        self._words = _KnownWords(self._tokens)

    def sums(self, texts: Sequence[str]) -> NDArray[np.float32]:
        import numpy as np

        sums = np.zeros((len(texts), self._table.shape[1]), dtype=np.float32)
        for start in range(0, len(texts), _TEXTS_AT_ONCE):
            block = [self._tokens_of_text(text) for text in texts[start : start + _TEXTS_AT_ONCE]]
            tokens = np.fromiter(chain.from_iterable(block), np.int32)
            vectors, places = self._rows(tokens)
            room = np.empty((max(map(len, block)), self._table.shape[1]), dtype=np.float32)
            end = 0
            for total, used in zip(sums[start:], map(len, block), strict=False):
                end += used
                theirs = room[:used]
                vectors.take(places[end - used : end], 0, theirs, "clip")  # which checks no bounds
                np.add.reduce(theirs, 0, None, total)
        return sums

    def _rows(self, tokens: NDArray[np.int32]) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
        """The vectors of some tokens, each once, and the place of each token among them. Sorting would take longer."""
        import numpy as np

        used = np.zeros(len(self._table), dtype=np.bool_)
        used[tokens] = True
        distinct = used.nonzero()[0]
        places = np.empty(len(self._table), dtype=np.int32)
        places[distinct] = np.arange(len(distinct), dtype=np.int32)
        return self._table[distinct].astype(np.float32), places[tokens]

    def _tokens_of_text(self, text: str) -> list[int]:
        """As the tokenizer does it for the whole text: no token has a space behind another character."""
        if text.endswith(" ") or ("<" in text and any(mark in text for mark in _MARKS)):
            return self._tokens(text)
        words = _WORDS.findall(f" {text}") if "  " in text or text[:1] == " " else text.split(" ")
        return list(chain.from_iterable(map(self._words.__getitem__, words)))

    def _tokens(self, text: str) -> list[int]:
        # One by one: a batch starts threads of the tokenizer, with which a process does not fork quietly.
        return self._tokenizer.encode(_encodable(text), add_special_tokens=False).ids

    def rest(self) -> None:
        """Release the rows that were read. Those needed again come from the system's cache of the file."""
        if self._mapping is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._mapping.madvise(mmap.MADV_DONTNEED)


class _KnownWords(dict[str, list[int]]):
    """The tokens of words, computed at first use. When it is full it begins anew: that is quicker than to evict one."""

    def __init__(self, tokens: Callable[[str], list[int]]) -> None:
        super().__init__()
        self._tokens = tokens

    def __missing__(self, word: str) -> list[int]:
        tokens = self._tokens(word)
        if len(word) <= _KEPT_CHARS:
            if len(self) >= KEPT_WORDS:
                self.clear()
            self[word] = tokens
        return tokens


def _encodable(text: str) -> str:
    """Replace lone surrogates, which JSON allows but UTF-8 does not."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Each row with length 1; a row of zeros stays as it is."""
    import numpy as np

    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
    lengths[lengths == 0] = 1
    units: NDArray[np.float32] = vectors / lengths[:, None]
    return units


def stored_vectors(data: bytes, count: int, dimensions: int) -> NDArray[np.float16] | None:
    """Vectors from their bytes, a row each; None if one has another length than 1 or 0, which would spoil scores."""
    import numpy as np

    if len(data) != 2 * dimensions * count:
        return None
    vectors = np.frombuffer(data, dtype=np.float16).reshape(count, dimensions)
    precise = vectors.astype(np.float32)
    squares = np.einsum("ij,ij->i", precise, precise)
    sound = (squares == 0) | ((squares >= _SQUARES[0]) & (squares <= _SQUARES[1]))
    return vectors if sound.all() else None


def load() -> StaticEmbeddings:
    """The model, loaded once for the process. The first call takes about half a second.

    Raises:
        EmbeddingsUnavailableError: it is not installed or cannot be loaded.
    """
    with _loading:
        return _load()


_loading = threading.Lock()


@cache
def _load() -> StaticEmbeddings:
    try:
        from tokenizers import Tokenizer

        package = _package_folder()
        # First, because it lets other threads run for its 50 ms: one of them loads numpy, see `BM25SearchProvider`.
        tokenizer = Tokenizer.from_file(str(package / _TOKENIZER))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        _disable_cache(tokenizer)
        _return_free_memory()
        load_numpy()
        return StaticEmbeddings(tokenizer, *_mapped(package / _WEIGHTS), _model_id(package))
    except Exception as error:  # search continues without it, whatever is wrong inside a foreign package
        raise EmbeddingsUnavailableError(f"{type(error).__name__}: {error}") from error


def _package_folder() -> Path:
    """The folder of wordllama. Its code is not imported: that would take longer than all the rest."""
    spec = importlib.util.find_spec("wordllama")
    if spec is None or spec.origin is None:
        raise ImportError("wordllama is not installed")
    return Path(spec.origin).parent


def _model_id(package: Path) -> str:
    """By the size and the time of its files: reading the table would take longer than mapping it."""
    found = ((name, (package / name).stat()) for name in (_TOKENIZER, _WEIGHTS))
    return " ".join(f"{name} {file.st_size} {file.st_mtime_ns}" for name, file in found)


def _mapped(weights: Path) -> tuple[NDArray[np.float16], mmap.mmap]:
    """Map the table from its file (safetensors: a length, a JSON header, then the numbers).

    Only the rows in use are loaded into memory, and processes on one machine share them.
    """
    import numpy as np

    with weights.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        tensor = json.loads(file.read(size))[_TENSOR]
        mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if tensor["dtype"] != "F16":
        raise ValueError(f"{weights.name} contains {tensor['dtype']} instead of F16")
    rows, columns = tensor["shape"]
    start = 8 + size + tensor["data_offsets"][0]
    return np.frombuffer(mapping, np.float16, rows * columns, start).reshape(rows, columns), mapping


def _disable_cache(tokenizer: Tokenizer) -> None:
    """Switch off the cache: to this tokenizer a whole text is one word, and it keeps the last 10,000, up to 60 MB."""
    resize = getattr(tokenizer.model, "_resize_cache", None)
    if resize is not None:
        resize(0)


def _return_free_memory() -> None:
    """Give back what parsing the tokenizer's file has left on the heap: 6 MB. Does nothing without glibc."""
    import ctypes

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


_THREADS = "OPENBLAS_NUM_THREADS"


def load_numpy() -> None:
    """Import numpy with a single thread for linear algebra, unless the operator says otherwise.

    Our matrices are small: more threads only wait for one another, long on a busy machine. The setting is read when
    numpy is loaded, and is removed from the environment so that child processes do not inherit it.
    """
    if "numpy" in sys.modules or _THREADS in os.environ:
        return
    os.environ[_THREADS] = "1"
    try:
        import numpy  # noqa: F401
    finally:
        del os.environ[_THREADS]
