"""Says in words what tools call the values in a request: web addresses, paths and file names.

What people ask of a file counts with it: `open notes.txt` reads one, `store this in notes.txt` writes one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pointsman.providers.bm25.actions import kind_of_request

MAX_VALUE_CHARS = 300  # of one value; the rest of a longer one changes nothing

_AROUND = ".,;:!?()[]{}<>\"'`"
_DOMAINS = frozenset(["com", "org", "net", "io", "dev", "ai", "app", "edu", "gov"])
_ROOTS = ("/", "~/", "./", "../", "~\\", ".\\", "..\\")
_KINDS = {
    "document": "pdf doc docx odt",
    "image": "png jpg jpeg gif svg webp bmp tiff",
    "audio": "mp3 wav flac ogg m4a",
    "video": "mp4 mov avi mkv webm",
}
_OTHER_FILES = """
    txt md rst csv tsv json yaml yml toml xml html htm xls xlsx ods ppt pptx log ini cfg conf env lock
    py js ts tsx jsx java c h cpp cs go rs rb php sh sql swift kt ipynb zip tar gz
"""
_FILES: dict[str, tuple[str, ...]] = dict.fromkeys(_OTHER_FILES.split(), ("file",))
_FILES |= {ending: ("file", kind) for kind, endings in _KINDS.items() for ending in endings.split()}

_CLOCK = re.compile(
    r"\bwhat(?:'s| is) the (?:time|date)(?: in\b| now\b|\W*$)|\bwhat (?:time|day|date) is it\b", re.IGNORECASE
)
_TODAY = re.compile(
    r"\b(?:today['\u2019]?s|current|present) date\b|\b(?:day|date) (?:is (?:it )?)?today\b|^\W*(?:the )?date\W*$"
    r"|\bwhat(?:['\u2019]?s| is) the date(?: in\b| now\b|\W*$)|\bwhat (?:day|date) is it\b",
    re.IGNORECASE,
)
_USES = re.compile(
    r"\bwho (?:uses|calls|imports)\b|\bwhere (?:is|are|do we|do they)\b[^.?!]{1,60}\b(?:use|used|called|imported)\b",
    re.IGNORECASE,
)
_REASONS = re.compile(r"\bwhat (?:was|is|were|are) (?:the|our|their) (?:reason|motive|rationale)", re.IGNORECASE)
_OUR_REASONS = re.compile(r"\bwhy (?:did|do|have|had|are|were) (?:we|they)\b", re.IGNORECASE)
_SIZE = re.compile(r"\bhow (?:large|big) (?:is|are)\b", re.IGNORECASE)

_ASCII_RUN = re.compile(r"[!-~]+")

# In a text in which FILE stands for every file name.
_FILE = "\0"
_OF_FILE = rf"(?:the )?(?:file )?{_FILE}"
_READING = re.compile(
    rf"\b(?:open|print|show|display|view)(?: me)?(?: (?:the )?(?:contents?|text) of)? {_OF_FILE}"
    rf"|\bwhat(?:'s| is) (?:in|inside) {_OF_FILE}|\bwhat does {_OF_FILE} (?:say|contain)\b",
    re.IGNORECASE,
)
_INTO_FILE = re.compile(  # `rename FILE to FILE` writes none
    rf"(?<!{_FILE} )\b(?:in|into|to|as) (?:an? |the )?(?:new )?(?:file )?(?:called |named )?{_FILE}", re.IGNORECASE
)


def words_for_values(text: str) -> dict[str, bool]:
    """The words for all values in a text, each once and in order; True: it counts as much as if it were said.

    The time that one asks for is the current one, and a clock knows the date, too; who asks how large something is asks
    for its size; where it is used, for its usages in the code; and for its reason, why.
    """
    found: dict[str, bool] = dict.fromkeys(["current"], False) if _CLOCK.search(text) else {}
    if _TODAY.search(text):
        found |= dict.fromkeys(("current", "time"), False)
    if _SIZE.search(text):
        found["size"] = False
    if _USES.search(text):
        found |= dict.fromkeys(("usages", "callers", "code"), False)
    if _REASONS.search(text):
        found["why"] = False
    if _OUR_REASONS.search(text):
        found |= dict.fromkeys(("reason", "decision"), False)
    masked = text.split()
    for place, written in enumerate(masked):
        if words := _words_for(written):
            found |= dict.fromkeys(words, False)
            if "file" in words:
                masked[place] = _FILE
    return found | _done_with_files(" ".join(masked), text) if _FILE in masked else found


def without_values(text: str) -> str:
    """A text without the web addresses, paths and file names in it. These are ASCII, also in text without spaces."""
    return _ASCII_RUN.sub(lambda run: " " if _words_for(run[0]) else run[0], text)


def files_in(text: str) -> Iterator[str]:
    """The names of the files in a text, with their folders."""
    return (written for written in text.split() if "file" in _words_for(written))


def _done_with_files(masked: str, text: str) -> dict[str, bool]:
    """What is asked of files, in the words of tools."""
    if _READING.search(masked):
        return {"file": True, "read": True}
    if _SIZE.search(masked):
        return {"size": True}
    writes = _INTO_FILE.search(masked) and kind_of_request(text) == "writes"
    return {"file": True, "write": True} if writes else {}


def _words_for(written: str) -> tuple[str, ...]:
    if "." not in written and "/" not in written and "\\" not in written:
        return ()
    value = written.strip(_AROUND)[:MAX_VALUE_CHARS]
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
