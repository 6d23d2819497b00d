"""Says in words what tools call the values in a request: web addresses, paths and file names."""

from __future__ import annotations

import re

MAX_VALUE_CHARS = 300  # of one value; the rest of a longer one changes nothing

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
_CLOCK = re.compile(
    r"\bwhat(?:'s| is) the (?:time|date)(?: in\b| now\b|\W*$)|\bwhat (?:time|day|date) is it\b", re.IGNORECASE
)
_USES = re.compile(
    r"\bwho (?:uses|calls|imports)\b|\bwhere (?:is|are|do we|do they)\b[^.?!]{1,60}\b(?:use|used|called|imported)\b",
    re.IGNORECASE,
)
_REASONS = re.compile(r"\bwhat (?:was|is|were|are) (?:the|our|their) (?:reason|motive|rationale)", re.IGNORECASE)


def words_for_values(text: str) -> dict[str, None]:
    """The words for all values in a text, each once and in order.

    The time that one asks for is the current one; who asks where something is used wants its usages in the code; and
    who asks for the reason of something asks why.
    """
    found: dict[str, None] = dict.fromkeys(["current"]) if _CLOCK.search(text) else {}
    if _USES.search(text):
        found.update(dict.fromkeys(("usages", "callers", "code")))
    if _REASONS.search(text):
        found["why"] = None
    for value in text.split():
        if "." in value or "/" in value or "\\" in value:
            found.update(dict.fromkeys(_words_for(value.strip(_AROUND)[:MAX_VALUE_CHARS])))
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
