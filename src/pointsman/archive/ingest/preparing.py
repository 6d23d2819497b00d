"""From the bytes of a file to a document with its passages and citations. Touches no store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pointsman.archive.citations.extract import citations_of
from pointsman.archive.ingest import describing
from pointsman.archive.ingest.kinds import Kind
from pointsman.archive.ingest.reading import BrokenFileError, decoded
from pointsman.archive.model.model import Document, FileState, PreparedDocument, Source
from pointsman.archive.text.chunking import chunks_of
from pointsman.archive.text.front_matter import FrontMatterError, read_front_matter
from pointsman.archive.text.html import read_html
from pointsman.archive.text.lines import lines_of, whole
from pointsman.archive.text.outline import structure
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
    called = whole(describing.title_of(told, title, structure(lines).headings, id))
    document = Document(
        collection=collection,
        id=id,
        title=called,
        content=content,
        source=describing.source_of(told, source),
        date=describing.date_of(told, day, id, origin.mtime_ns),
        tags=describing.tags_of(told),
        url=describing.url_of(told, url),
        metadata=describing.rest_of(told),
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
