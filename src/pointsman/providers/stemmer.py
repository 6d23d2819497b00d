"""The English stemmer of snowballstemmer. Its package would load 32 other languages with it, for 25 ms and 4 MB."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Protocol

_ALIAS = "pointsman.providers.snowball"  # the same folder under another name, so that its `__init__` does not run


class Stemmer(Protocol):
    """Stateful: each thread needs its own."""

    def stemWord(self, word: str) -> str:  # noqa: N802 - the library's name
        ...


def english() -> Stemmer:
    if _ALIAS not in sys.modules:
        package = ModuleType(_ALIAS)
        package.__path__ = [str(stemmers_folder())]
        sys.modules[_ALIAS] = package
    stemmer: Stemmer = import_module(f"{_ALIAS}.english_stemmer").EnglishStemmer()
    return stemmer


def stemmers_folder() -> Path:
    spec = find_spec("snowballstemmer")
    if spec is None or spec.origin is None:
        raise ImportError("snowballstemmer is not installed")
    return Path(spec.origin).parent
