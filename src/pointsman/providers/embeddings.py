"""Static embeddings: turns texts into vectors offline, without running a neural network. The model is in a wheel."""

from __future__ import annotations

import importlib.util
import json
import mmap
import os
import sys
import threading
from collections.abc import Sequence
from functools import cache
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


class Embedder(Protocol):
    def sums(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """For each text the sum of the vectors of its tokens; zeros if it has none."""
        ...


class EmbeddingsUnavailableError(Exception):
    """The model cannot be loaded."""


class StaticEmbeddings:
    def __init__(self, tokenizer: Tokenizer, table: NDArray[np.float16], mapping: mmap.mmap | None = None) -> None:
        """`mapping`: the file that holds the table, if it is not in memory."""
        self._tokenizer = tokenizer
        self._table = table
        self._mapping = mapping

    def sums(self, texts: Sequence[str]) -> NDArray[np.float32]:
        import numpy as np

        sums = np.zeros((len(texts), self._table.shape[1]), dtype=np.float32)
        for row, text in enumerate(texts):
            # One by one: a batch starts threads of the tokenizer, with which a process does not fork quietly.
            numbers = self._tokenizer.encode(_encodable(text), add_special_tokens=False).ids
            if numbers:
                self._table[numbers].sum(axis=0, dtype=np.float32, out=sums[row])
        return sums

    def rest(self) -> None:
        """Release the rows that were read. Those needed again come from the system's cache of the file."""
        if self._mapping is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._mapping.madvise(mmap.MADV_DONTNEED)


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
        load_numpy()
        from tokenizers import Tokenizer

        package = _package_folder()
        tokenizer = Tokenizer.from_file(str(package / _TOKENIZER))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        _disable_cache(tokenizer)
        _return_free_memory()
        return StaticEmbeddings(tokenizer, *_mapped(package / _WEIGHTS))
    except Exception as error:  # search continues without it, whatever is wrong inside a foreign package
        raise EmbeddingsUnavailableError(f"{type(error).__name__}: {error}") from error


def _package_folder() -> Path:
    """The folder of wordllama. Its code is not imported: that would take longer than all the rest."""
    spec = importlib.util.find_spec("wordllama")
    if spec is None or spec.origin is None:
        raise ImportError("wordllama is not installed")
    return Path(spec.origin).parent


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
