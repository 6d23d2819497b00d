"""Values in a request: names, and web addresses, paths and file names, said in the words that tools use for them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pointsman.providers.text import words

MAX_CHARS = 300  # of one value; the rest of a longer one changes nothing

_AROUND = ".,;:!?()[]{}<>\"'`"
_DOMAINS = frozenset(["com", "org", "net", "io", "dev", "ai", "app", "edu", "gov"])
_ROOTS = ("/", "~/", "./", "../", "~\\", ".\\", "..\\")
_KINDS = {
    "document": "md rst txt pdf doc docx odt",
    "image": "png jpg jpeg gif svg webp bmp tiff",
    "audio": "mp3 wav flac ogg m4a",
    "video": "mp4 mov avi mkv webm",
}
_OTHER_FILES = """
    csv tsv json yaml yml toml xml html htm xls xlsx ods ppt pptx log ini cfg conf env lock
    py js ts tsx jsx java c h cpp cs go rs rb php sh sql swift kt ipynb zip tar gz
"""
_FILES: dict[str, tuple[str, ...]] = dict.fromkeys(_OTHER_FILES.split(), ("file",))
_FILES |= {ending: ("file", kind) for kind, endings in _KINDS.items() for ending in endings.split()}


# A capital inside a sentence: after a space that does not follow the end of another one.
_NAME = re.compile(r"(?<=[^\s.!?:\"]\s)['\"(]?[A-Z]\w*")


def names_in(text: str) -> Iterator[str]:
    """The words of a text that are written as names, in lower case."""
    for name in _NAME.finditer(text):
        yield from words(name[0])


def words_for_values(text: str) -> dict[str, None]:
    """The words for all values in a text, each once and in order."""
    found: dict[str, None] = {}
    for value in text.split():
        if "." in value or "/" in value or "\\" in value:
            found.update(dict.fromkeys(_words_for(value.strip(_AROUND)[:MAX_CHARS])))
    return found


def _words_for(value: str) -> tuple[str, ...]:
    if "://" in value or value.startswith("www."):
        return ("url", "page", "website")
    name = value.rstrip("/\\").replace("\\", "/").rpartition("/")[2]
    base, _, ending = name.rpartition(".")
    ending = ending.lower()
    if "@" in base and ending.isalpha():
        return ("email",)
    if base and ending in _FILES:
        return (*_FILES[ending], "path") if value != name else _FILES[ending]
    if value.startswith(_ROOTS) or value[1:3] == ":\\":
        return ("path", "directory")
    if base and ending in _DOMAINS:
        return ("url", "page", "website")
    return ()
