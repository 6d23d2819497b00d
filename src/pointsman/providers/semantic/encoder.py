"""The sentence encoder: all-MiniLM-L6-v2 with int8 weights, run by onnxruntime. Offline: model and vocabulary are files
of installed packages."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pointsman.core.extras import SEMANTIC_MODEL, install_command, semantic_is_installed
from pointsman.providers.embeddings import load_numpy, unit
from pointsman.providers.text import without_stop_words

if TYPE_CHECKING:  # heavy: loaded with the model
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

DIMENSIONS = 384
_WEIGHTS = "model.onnx"
_VOCABULARY = "vocab.txt"
_START, _END = 101, 102  # [CLS] and [SEP] of the vocabulary
_ADDED = 2
_LEAST_TOKENS = 8  # for a sentence
_TOKEN_CHARS = 10  # of a text that are read for each token that it may have


class EncoderUnavailableError(Exception):
    """The encoder is not installed or cannot be loaded."""


class SentenceEncoder:
    """May be used by several threads at once."""

    def __init__(self, session: Any, tokenizer: Tokenizer, model_id: str) -> None:
        self.model_id = model_id  # of the weights: vectors of different weights are not comparable
        self._session = session
        self._tokenizer = tokenizer

    def encode(self, text: str, max_tokens: int) -> NDArray[np.float32]:
        """The unit vector of the beginning of a text; zeros if there is nothing to encode."""
        import numpy as np

        tokens = self._tokens(text, max_tokens - _ADDED)
        return self._vectors([tokens])[0] if tokens else np.zeros(DIMENSIONS, dtype=np.float32)

    def encode_sentences(self, sentences: Sequence[str], max_tokens: int) -> NDArray[np.float32]:
        """A unit vector for each sentence that has words, in one run of the model over at most `max_tokens` tokens.

        Sentences have equal shares of them: one that is longer loses its stop words and is then cut, and of too many
        the first are taken.
        """
        import numpy as np

        given = [sentence for sentence in sentences if self._tokens(sentence, 1)][: max_tokens // _LEAST_TOKENS]
        if not given:
            return np.zeros((0, DIMENSIONS), dtype=np.float32)
        return self._vectors([self._shortened(sentence, max_tokens // len(given) - _ADDED) for sentence in given])

    def _shortened(self, sentence: str, room: int) -> list[int]:
        tokens = self._tokens(sentence, room + 1)
        if len(tokens) > room:
            tokens = self._tokens(without_stop_words(sentence), room) or tokens[:room]
        return tokens

    def _tokens(self, text: str, room: int) -> list[int]:
        if room <= 0:
            return []
        text = text[: room * _TOKEN_CHARS].encode("utf-8", "replace").decode()  # JSON allows lone surrogates
        tokens: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return tokens[:room]

    def _vectors(self, texts: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """One run of the model. A text's vector is the mean over its tokens in the last layer."""
        import numpy as np

        ids = np.zeros((len(texts), _ADDED + max(map(len, texts))), dtype=np.int64)
        mask = np.zeros_like(ids)
        for row, tokens in enumerate(texts):
            ids[row, : len(tokens) + _ADDED] = (_START, *tokens, _END)
            mask[row, : len(tokens) + _ADDED] = 1
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        layer: NDArray[np.float32] = self._session.run(None, inputs)[0]
        return unit(np.einsum("ijk,ij->ik", layer, mask.astype(np.float32)))


def load() -> SentenceEncoder:
    """Takes about 0.3 seconds and 160 MB.

    Raises:
        EncoderUnavailableError: it is not installed or cannot be loaded.
    """
    if not semantic_is_installed():
        raise EncoderUnavailableError(
            f"The sentence encoder is not installed. Install it with: {install_command('semantic')} "
            "(in a checkout: make semantic)"
        )
    try:
        load_numpy()
        weights = _weights()
        return SentenceEncoder(_session(weights), _tokenizer(), sha256(weights.read_bytes()).hexdigest())
    except Exception as error:  # search continues without it, whatever is wrong inside a foreign package
        raise EncoderUnavailableError(f"{type(error).__name__}: {error}") from error


def _weights() -> Path:
    """In the folder of the package, which is not imported."""
    spec = importlib.util.find_spec(SEMANTIC_MODEL)
    if spec is None or spec.origin is None:
        raise ImportError(f"{SEMANTIC_MODEL} has no folder")
    return Path(spec.origin).with_name(_WEIGHTS)


def _session(weights: Path) -> Any:
    """One thread and no arena: a text is short, and memory that is not in use goes back to the system."""
    onnxruntime = importlib.import_module("onnxruntime")  # optional, so type checkers may not find it
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False
    return onnxruntime.InferenceSession(weights, options, providers=["CPUExecutionProvider"])


def _tokenizer() -> Tokenizer:
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer

    tokenizer = Tokenizer(WordPiece.from_file(str(Path(__file__).with_name(_VOCABULARY)), unk_token="[UNK]"))  # noqa: S106
    tokenizer.normalizer = BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    return tokenizer
