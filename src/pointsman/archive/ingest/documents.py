"""Prepares a document from the bytes of a file: metadata, passages and citations. Does not use the store."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import PurePosixPath
from typing import Any

from pointsman.archive.citations.extract import citations_of
from pointsman.archive.ingest.files import BrokenFileError, Kind, decode
from pointsman.archive.model.documents import Document, FileState, PreparedDocument, Source
from pointsman.archive.text.chunks import chunks_of
from pointsman.archive.text.front_matter import FrontMatterError, read_front_matter
from pointsman.archive.text.html import read_html
from pointsman.archive.text.lines import lines_of, replace_invalid, strip_markup
from pointsman.archive.text.outline import Heading, structure
from pointsman.archive.text.pdf import PdfError, read_pdf


def prepare(
    raw: bytes,
    kind: Kind,
    origin: FileState,
    *,
    collection: str,
    id: str,  # noqa: A002
    source: Source | None,
) -> PreparedDocument:
    """Raises BrokenFileError."""
    title: str | None = None
    url = day = None
    if kind == "pdf":
        try:
            pdf = read_pdf(raw)
        except PdfError as error:
            raise BrokenFileError(str(error)) from None
        title, content = _pdf_title(pdf.title), pdf.markdown
    elif kind == "html":
        page = read_html(decode(raw, kind))
        title, url, day, content = page.title, page.url, page.date, page.markdown
    else:
        content = decode(raw, kind)
    content = _normalize(content)
    lines = lines_of(content)
    front_matter = _front_matter(lines, kind)
    title = replace_invalid(title_of(front_matter, title, structure(lines).headings, id))
    document = Document(
        collection=collection,
        id=id,
        title=title,
        content=content,
        source=source_of(front_matter, source),
        date=date_of(front_matter, day, id, origin.mtime_ns),
        tags=tags_of(front_matter),
        url=url_of(front_matter, url),
        metadata=other_metadata(front_matter),
    )
    return PreparedDocument(document, chunks_of(content, title), citations_of(content), origin)


def _front_matter(lines: Sequence[str], kind: Kind) -> dict[str, Any]:
    try:
        return read_front_matter(lines) if kind in ("markdown", "text") else {}
    except FrontMatterError as error:
        if kind == "text":
            return {}  # in plain text, lines between dashes need not be front matter
        raise BrokenFileError(f"its front matter is invalid: {error}") from None


def _normalize(text: str) -> str:
    return replace_invalid("\n".join(lines_of(text.lstrip("\ufeff"))))


def _pdf_title(title: str | None) -> str | None:
    """Drop titles that programs write by default: their own name or that of the file."""
    if not title or title.startswith("Microsoft ") or title.lower().startswith("untitled") or "." in title[-6:]:
        return None
    return title


MAX_TITLE = 300
MAX_TAGS = 100
_MAX_TAG = 100

_DAY = re.compile(r"(?<!\d)(\d{4}-\d{2}-\d{2})(?!\d)")
_WEB = ("http://", "https://")
_OWN_FIELDS = frozenset({"title", "date", "tags", "source", "url"})  # fields of `Document`


def title_of(front_matter: Mapping[str, Any], given: str | None, headings: Sequence[Heading], path: str) -> str:
    """From front matter, the file format's own metadata (`given`), the first heading, or the file name."""
    first = next((heading.text for heading in headings if heading.level == 1), "")
    for title in (front_matter.get("title"), given, strip_markup(first)):
        if isinstance(title, str | int | float) and (text := " ".join(str(title).split())):
            return text[:MAX_TITLE]
    return PurePosixPath(path).stem[:MAX_TITLE]


def date_of(front_matter: Mapping[str, Any], given: str | None, path: str, mtime_ns: int) -> str:
    """A day, or a time in UTC: from front matter, the file format's metadata, the path, or the time of modification."""
    for written in (front_matter.get("date"), given):
        if isinstance(written, str) and (moment := _iso(written.strip())):
            return moment
    for day in reversed(_DAY.findall(path)):
        if moment := _iso(day):
            return moment
    try:
        return _moment(datetime.fromtimestamp(mtime_ns / 1e9, UTC))
    except (ValueError, OverflowError, OSError):  # outside the range of `datetime`
        return "1970-01-01"


def tags_of(front_matter: Mapping[str, Any]) -> tuple[str, ...]:
    """From a list, or a text with commas or spaces between the tags."""
    written = front_matter.get("tags")
    if isinstance(written, str):
        written = written.split(",") if "," in written else written.split()
    if not isinstance(written, list):
        return ()
    tags = (str(tag).strip().lstrip("#")[:_MAX_TAG] for tag in written if isinstance(tag, str | int | float))
    return tuple(dict.fromkeys(tag for tag in tags if tag))[:MAX_TAGS]


def source_of(front_matter: Mapping[str, Any], option: Source | None) -> Source:
    if option is not None:
        return option
    written = front_matter.get("source")
    return "url" if isinstance(written, str) and (written == "url" or written.startswith(_WEB)) else "research"


def url_of(front_matter: Mapping[str, Any], given: str | None) -> str | None:
    """From `url`, an address in `source`, or the file format's metadata."""
    for written in (front_matter.get("url"), front_matter.get("source"), given):
        if isinstance(written, str) and written.startswith(_WEB):
            return written
    return None


def other_metadata(front_matter: Mapping[str, Any]) -> dict[str, Any] | None:
    return {key: value for key, value in front_matter.items() if key not in _OWN_FIELDS} or None


def _iso(text: str) -> str | None:
    try:
        if len(text) == 10:
            return date.fromisoformat(text).isoformat()
        return _moment(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        day = _DAY.match(text)
        return _iso(day[1]) if day and text != day[1] else None


def _moment(moment: datetime) -> str:
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    return f"{moment.isoformat(timespec='seconds')}Z"
