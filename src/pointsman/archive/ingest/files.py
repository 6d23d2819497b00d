"""The kinds of files that are read, by their extensions; a file as bytes, and bytes as text."""

from __future__ import annotations

import codecs
import hashlib
import os
import re
import stat
from pathlib import Path, PurePosixPath
from typing import Literal

from pointsman.archive.model.documents import FileState

Kind = Literal["markdown", "text", "html", "pdf"]

_ENDINGS: dict[Kind, str] = {
    "markdown": "md markdown mdown mkd mkdn mdx qmd rmd",
    "text": "txt text rst org adoc asciidoc textile wiki tex",
    "html": "html htm xhtml",
    "pdf": "pdf",
}
_KINDS: dict[str, Kind] = {f".{ending}": kind for kind, endings in _ENDINGS.items() for ending in endings.split()}
_WITHOUT_EXTENSION = frozenset(
    {"readme", "license", "licence", "changelog", "changes", "news", "notes", "todo", "authors"}
)


def kind_of(path: str) -> Kind | None:
    """None: read only if --include names it."""
    name = PurePosixPath(path)
    if not name.suffix:
        return "text" if name.name.lower() in _WITHOUT_EXTENSION else None
    return _KINDS.get(name.suffix.lower())


MAX_BYTES: dict[Kind, int] = {"markdown": 32 << 20, "text": 32 << 20, "html": 32 << 20, "pdf": 128 << 20}

_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_CHARSET = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?([\w-]{1,40})""", re.IGNORECASE)


class BrokenFileError(Exception):
    """The file is skipped. The message says why, to follow the file's name and a colon."""


def read_bytes(path: Path, kind: Kind) -> tuple[bytes, FileState]:
    """Raises BrokenFileError."""
    try:
        # O_NOFOLLOW: it may have become a link meanwhile. O_NONBLOCK: opening a pipe would block.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb") as file:
            seen = os.fstat(file.fileno())
            if not stat.S_ISREG(seen.st_mode):
                raise BrokenFileError("it is not a regular file")
            most = MAX_BYTES[kind]
            raw = file.read(most + 1) if seen.st_size <= most else b""
    except OSError as error:
        raise BrokenFileError(f"it cannot be read: {error.strerror or type(error).__name__}") from None
    if max(seen.st_size, len(raw)) > most:  # it may have grown meanwhile
        raise BrokenFileError(f"it is larger than {most >> 20} MB; split it")
    return raw, FileState(str(path), len(raw), seen.st_mtime_ns, hashlib.sha256(raw).hexdigest())


def decode(raw: bytes, kind: Kind) -> str:
    """From UTF-8, UTF-16 with a byte order mark, or the charset that an HTML page declares. Raises BrokenFileError."""
    for mark, encoding in _BOMS:
        if raw.startswith(mark):
            return _decode_strictly(raw[len(mark) :], encoding)
    if b"\0" in raw:
        raise BrokenFileError("it contains binary data, not text")
    declared = _CHARSET.search(raw, 0, 4096) if kind == "html" else None
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        if declared:
            return _decode_strictly(raw, declared[1].decode())
        line = raw.count(b"\n", 0, error.start) + 1
        raise BrokenFileError(f"it is not UTF-8 (line {line}, byte {error.start}); save it as UTF-8") from None


def _decode_strictly(raw: bytes, encoding: str) -> str:
    try:
        text = raw.decode(encoding)
    except (UnicodeDecodeError, LookupError):
        raise BrokenFileError(f"it is not {encoding}, although it declares it; save it as UTF-8") from None
    if "\0" in text:
        raise BrokenFileError("it contains binary data, not text")
    return text
