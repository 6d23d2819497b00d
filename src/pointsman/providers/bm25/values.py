"""Says in words what tools call the values in a request: web addresses, paths and file names.

What people ask of a file counts with it: `open notes.txt` reads one, `store this in notes.txt` writes one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pointsman.providers.bm25.actions import kind_of_request
from pointsman.providers.bm25.phrases import SIZE, words_for_phrases
from pointsman.providers.text import CJK

MAX_VALUE_CHARS = 300  # of one value; the rest of a longer one changes nothing

_OPENING_MARKS = "([{<\"'`"
_AROUND = ".,;:!?()[]{}<>\"'`"
_DOMAINS = frozenset(["com", "org", "net", "io", "dev", "ai", "app", "edu", "gov"])
_WEB = frozenset(["http", "https"])
_ROOTS = ("/", "~/", "./", "../", "~\\", ".\\", "..\\")
_KINDS = {
    "document": "pdf doc docx odt",
    "image": "png jpg jpeg gif svg webp bmp tiff",
    "audio": "mp3 wav flac ogg m4a",
    "video": "mp4 mov avi mkv webm",
}
_OTHER_FILES = """
    txt md rst csv tsv json yaml yml toml xml html htm xls xlsx ods ppt pptx log ini cfg conf env lock
    py js ts tsx jsx css scss java c h cpp cs go rs rb php sh sql swift kt lua ipynb tex zip tar gz
"""
_FOLDER = ("path", "directory")
_OPENING = frozenset({"open", "read", "cat", "print", "edit"})
_FILES: dict[str, tuple[str, ...]] = dict.fromkeys(_OTHER_FILES.split(), ("file",))
_FILES |= {ending: ("file", kind) for kind, endings in _KINDS.items() for ending in endings.split()}

_DOTFILE = re.compile(  # `.ssh` and `.config` are folders
    r"(?:.*[/\\])?\.(?:env(?:\.\w+)?|\w+rc|\w+ignore|(?:bash_)?profile|gitattributes|gitmodules|editorconfig|htaccess)",
    re.IGNORECASE,
)

_ASCII_RUN = re.compile(r"[!-~]+")

# In a text in which FILE stands for every file name, and ADDRESS for every web address.
_FILE = "\0"
_ADDRESS = "\1"
_READING_ADDRESS = re.compile(  # or the address is all there is
    rf"\b(?:read|fetch|get|load|download|scrape|show|view|print|display|summari[sz]e)(?: me)?"
    rf"(?: (?:the )?(?:(?:contents?|text) of )?(?:the )?(?:page |url |website |site |link )?(?:at )?)?\s*{_ADDRESS}"
    rf"|^\W*{_ADDRESS}\W*$|\bwhat(?:'s| is) (?:in|at|on) {_ADDRESS}|\bwhat does {_ADDRESS} (?:say|contain)\b"
    r"|\b(?:requests?|call|hit|text|contents?)(?: (?:the|an?))?(?: (?:api|endpoint|page|site))?(?: (?:to|of|from|at))? "
    rf"{_ADDRESS}"
    # `summarise the paper at ADDRESS`, `what does the policy at ADDRESS say`
    r"|\b(?:read|fetch|get|give|find|load|download|show|print|summari[sz]e|translate|check|extract|what) "
    r"[^.?!]{0,40}?\b(?:articles?|blog|chapter|contents?|docs|documents?|documentation|guide|html|manual|news|paper|"
    rf"policy|post|readme|report|section|source|spec|story|terms|text)\b[^.?!]{{0,40}}? {_ADDRESS}",
    re.IGNORECASE,
)
_OF_FILE = (
    rf"(?:the |this |my |an? )?(?:(?:file|image|picture|photo|document|video|text file) )?(?:called |named )?{_FILE}"
)
_READING = re.compile(
    rf"\b(?:open|print|read|show|display|view)(?: me)?(?: (?:the )?(?:contents?|text) of)? {_OF_FILE}"
    rf"|\bwhat(?:'s| is) (?:in|inside) {_OF_FILE}|\bwhat does {_OF_FILE} (?:say|contain)\b|^\W*{_FILE}\W*$",
    re.IGNORECASE,
)
_EDITING = re.compile(
    rf"\b(?:replace|change|fix|correct|edit|modify)\b[^.?!]{{0,80}} (?:in|of) {_OF_FILE}"
    rf"|^\W*{_FILE} (?:replace|change|fix|correct|edit|modify)\b",  # `index.html: replace the title`
    re.IGNORECASE,
)
_LOOKING_FOR_FILE = re.compile(
    rf"\b(?:where is|where's|find|locate|(?:look|search)(?: (?:in |on |through )?(?:the |my |our )?\w+)? for)(?: me)? "
    rf"{_OF_FILE}",
    re.IGNORECASE,
)
_HISTORY = re.compile(rf"\b(?:history|log|commits) (?:of|for) {_OF_FILE}", re.IGNORECASE)
_INTO_FILE = re.compile(  # `rename FILE to FILE` writes none
    rf"(?<!{_FILE} )\b(?:in|into|to|as) (?:an? |the )?(?:new )?(?:file )?(?:called |named )?{_FILE}", re.IGNORECASE
)


_OPENING_ADDRESS = re.compile(
    r"\b(?:open|visit|browse|go|navigate)(?: up)?(?: to)?(?: the)?(?: page| url| website| site| link)?(?: at)? "
    rf"{_ADDRESS}",
    re.IGNORECASE,
)


def words_for_values(text: str) -> dict[str, bool]:
    """The words for all values and phrases in a text, each once and in order; True: it counts as if it were said."""
    return words_for_phrases(text) | _said_of_values(text)


def _said_of_values(text: str) -> dict[str, bool]:
    """The words for the addresses, paths and file names in a text, and for what is asked of them."""
    found: dict[str, bool] = {}
    masked = text.replace(_FILE, " ").replace(_ADDRESS, " ").split()
    for place, written in enumerate(masked):
        if words := _words_for(written):
            if words == _FOLDER and place and masked[place - 1].lower() in _OPENING and written[-1] not in "/\\":
                words = ("file", "path")  # `open /etc/hosts`: who wants to see a folder lists it
            found |= dict.fromkeys(words, False)
            masked[place] = _FILE if "file" in words else _ADDRESS if "url" in words else written
    if _ADDRESS in masked:
        found |= _done_with_addresses(" ".join(masked))
    if _FILE not in masked:
        return found
    with_files = " ".join(masked)
    if _LOOKING_FOR_FILE.search(with_files):  # by its name, whatever is in it
        found = {word: said for word, said in found.items() if word not in _KINDS}
    return found | _done_with_files(with_files, text)


def without_values(text: str) -> str:
    """A text without the web addresses, paths and file names in it.

    Those in other letters than ASCII end at a space or a CJK character.
    """
    if not text.isascii():
        text = re.sub(rf"(?<!\S)(?:https?://|~?/)[^\s{CJK}]+", " ", text)  # compiled at first use: it takes 3 ms
    return _ASCII_RUN.sub(lambda run: " " if _words_for(run[0]) else run[0], text)


def files_in(text: str) -> Iterator[str]:
    """The names of the files in a text, with their folders, and the web addresses."""
    return (written for written in text.split() if not {"file", "url"}.isdisjoint(_words_for(written)))


def without_addresses(text: str) -> str:
    """A text without its web addresses: the words of a path say where something is, not what should be done."""
    if "://" not in text and "www." not in text:
        return text
    return " ".join([written for written in text.split() if "url" not in _words_for(written)])


def _done_with_addresses(masked: str) -> dict[str, bool]:
    """Whether an address is to be read or opened, in the words of tools."""
    if _OPENING_ADDRESS.search(masked):
        return {"url": True, "navigate": True}
    return {"url": True, "fetch": True} if _READING_ADDRESS.search(masked) else {}


def _done_with_files(masked: str, text: str) -> dict[str, bool]:
    """What is asked of files, in the words of tools."""
    if _READING.search(masked):
        several = {"multiple": True} if masked.count(_FILE) > 1 else {}
        return {"file": True, "read": True} | several
    if _EDITING.search(masked):
        return {"file": True, "edit": True}
    if _LOOKING_FOR_FILE.search(masked):
        return {"file": True, "search": True}
    if _HISTORY.search(masked):
        return {"commit": True, "log": True}
    if SIZE.search(masked):
        return {"size": True}
    writes = _INTO_FILE.search(masked) and kind_of_request(text) == "writes"
    return {"file": True, "write": True} if writes else {}


def _words_for(written: str) -> tuple[str, ...]:
    if "." not in written and "/" not in written and "\\" not in written:
        return ()
    value = written.strip(_AROUND)[:MAX_VALUE_CHARS]
    scheme, separator, behind = value.partition("://")
    if separator and scheme.lower() == "file":
        value = behind
    elif separator and scheme.lower() not in _WEB:
        return ()  # `ssh://`, `postgres://`: no page of the web
    elif separator or value.startswith("www."):
        return ("url", "page", "website")
    if _DOTFILE.fullmatch(written.lstrip(_OPENING_MARKS).rstrip(_AROUND)[:MAX_VALUE_CHARS]):  # `value` has lost the dot
        return ("file", "path") if "/" in value or "\\" in value else ("file",)
    name = value.rstrip("/\\").replace("\\", "/").rpartition("/")[2]
    base, _, ending = name.rpartition(".")
    ending = ending.lower()
    if "@" in base and ending.isalpha():
        return ("email",)
    if base and ending in _FILES:
        return (*_FILES[ending], "path") if value != name else _FILES[ending]
    if value.startswith(_ROOTS) or value[1:3] == ":\\":
        return _FOLDER
    if base and ending in _DOMAINS:
        return ("url", "page", "website")
    return ()
