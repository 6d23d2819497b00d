"""From the bytes of a file to a document with its passages and citations. Touches no store."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import PurePosixPath
from typing import Any

from pointsman.archive.citations.extract import citations_of
from pointsman.archive.ingest.files import BrokenFileError, Kind, decoded
from pointsman.archive.model.documents import Document, FileState, PreparedDocument, Source
from pointsman.archive.text.chunks import chunks_of
from pointsman.archive.text.front_matter import FrontMatterError, read_front_matter
from pointsman.archive.text.html import read_html
from pointsman.archive.text.lines import lines_of, plain, whole
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
    title = url = day = None
    if kind == "pdf":
        try:
            pdf = read_pdf(raw)
        except PdfError as error:
            raise BrokenFileError(str(error)) from None
        title, content = _sensible(pdf.title), pdf.markdown
    elif kind == "html":
        page = read_html(decoded(raw, kind))
        title, url, day, content = page.title, page.url, page.date, page.markdown
    else:
        content = decoded(raw, kind)
    content = _clean(content)
    lines = lines_of(content)
    told = _front_matter(lines, kind)
    called = whole(title_of(told, title, structure(lines).headings, id))
    document = Document(
        collection=collection,
        id=id,
        title=called,
        content=content,
        source=source_of(told, source),
        date=date_of(told, day, id, origin.mtime_ns),
        tags=tags_of(told),
        url=url_of(told, url),
        metadata=rest_of(told),
    )
    return PreparedDocument(document, chunks_of(content, called), citations_of(content), origin)


def _front_matter(lines: Sequence[str], kind: Kind) -> dict[str, Any]:
    try:
        return read_front_matter(lines) if kind in ("markdown", "text") else {}
    except FrontMatterError as error:
        if kind == "text":
            return {}  # lines between rules, which mean nothing in plain text
        raise BrokenFileError(f"its front matter cannot be understood: {error}") from None


def _clean(text: str) -> str:
    """One kind of line end, and nothing that no store takes."""
    return whole("\n".join(lines_of(text.lstrip("\ufeff"))))


def _sensible(title: str | None) -> str | None:
    """Programs write their own names and those of files into PDFs."""
    if not title or title.startswith("Microsoft ") or title.lower().startswith("untitled") or "." in title[-6:]:
        return None
    return title


MAX_TITLE = 300
MAX_TAGS = 100
_MAX_TAG = 100

_DAY = re.compile(r"(?<!\d)(\d{4}-\d{2}-\d{2})(?!\d)")
_WEB = ("http://", "https://")
_TOLD = frozenset({"title", "date", "tags", "source", "url"})  # have places of their own


def title_of(told: Mapping[str, Any], given: str | None, headings: Sequence[Heading], path: str) -> str:
    """`given`: what the format itself calls the title."""
    first = next((heading.text for heading in headings if heading.level == 1), "")
    for title in (told.get("title"), given, plain(first)):
        if isinstance(title, str | int | float) and (said := " ".join(str(title).split())):
            return said[:MAX_TITLE]
    return PurePosixPath(path).stem[:MAX_TITLE]


def date_of(told: Mapping[str, Any], given: str | None, path: str, mtime_ns: int) -> str:
    """A day, or a moment in UTC."""
    for said in (told.get("date"), given):
        if isinstance(said, str) and (moment := _iso(said.strip())):
            return moment
    for day in reversed(_DAY.findall(path)):
        if moment := _iso(day):
            return moment
    try:
        return _moment(datetime.fromtimestamp(mtime_ns / 1e9, UTC))
    except (ValueError, OverflowError, OSError):  # a year that calendars do not know
        return "1970-01-01"


def tags_of(told: Mapping[str, Any]) -> tuple[str, ...]:
    """A list, or words with commas or spaces between them."""
    said = told.get("tags")
    if isinstance(said, str):
        said = said.split(",") if "," in said else said.split()
    if not isinstance(said, list):
        return ()
    tags = (str(tag).strip().lstrip("#")[:_MAX_TAG] for tag in said if isinstance(tag, str | int | float))
    return tuple(dict.fromkeys(tag for tag in tags if tag))[:MAX_TAGS]


def source_of(told: Mapping[str, Any], asked: Source | None) -> Source:
    if asked is not None:
        return asked
    said = told.get("source")
    return "url" if isinstance(said, str) and (said == "url" or said.startswith(_WEB)) else "research"


def url_of(told: Mapping[str, Any], given: str | None) -> str | None:
    """An address in `source` is one too."""
    for said in (told.get("url"), told.get("source"), given):
        if isinstance(said, str) and said.startswith(_WEB):
            return said
    return None


def rest_of(told: Mapping[str, Any]) -> dict[str, Any] | None:
    return {key: value for key, value in told.items() if key not in _TOLD} or None


def _iso(said: str) -> str | None:
    try:
        if len(said) == 10:
            return date.fromisoformat(said).isoformat()
        return _moment(datetime.fromisoformat(said))
    except (ValueError, OverflowError):
        day = _DAY.match(said)
        return _iso(day[1]) if day and said != day[1] else None


def _moment(moment: datetime) -> str:
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    return f"{moment.isoformat(timespec='seconds')}Z"
