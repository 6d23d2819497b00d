"""`documents_get_document`, `documents_get_outline`, `documents_get_section`: a document, its headings, one section."""

from __future__ import annotations

from pointsman.archive.archive import Archive
from pointsman.archive.text.outline import outline
from pointsman.archive.text.sections import find_section
from pointsman.archive.text.similar_names import nearest
from pointsman.archive.tools.arguments import Arguments
from pointsman.archive.tools.base import ArchiveTool, Call, ToolError
from pointsman.archive.tools.documents_lookup import (
    COLLECTION_PARAMETER,
    COLLECTION_SCHEMA,
    DOCUMENT_PARAMETER,
    MAX_NAME_CHARS,
    collection_fields,
    find_document,
    join_names,
)
from pointsman.core.model import Json

DEFAULT_DEPTH = 3
MAX_HEADINGS = 2_000  # of an outline
MAX_COMPARED = 5_000  # headings that are compared with one that does not exist


def get_document(archive: Archive, arguments: Json, call: Call) -> Json:
    collection, document = find_document(archive, Arguments(arguments))
    return {
        **collection_fields(collection),
        "document": document.id,
        "title": document.title,
        "content": document.content,
    }


def get_outline(archive: Archive, arguments: Json, call: Call) -> Json:
    given = Arguments(arguments)
    depth = given.integer("maxDepth", low=1, high=6, default=DEFAULT_DEPTH)
    collection, document = find_document(archive, given)
    every = outline(document.content)
    headings = [heading for heading in every if heading.level <= depth]
    answer: Json = {
        **collection_fields(collection),
        "document": document.id,
        "title": document.title,
        "outline": [
            {"level": heading.level, "text": heading.text, "line": heading.line} for heading in headings[:MAX_HEADINGS]
        ],
    }
    notice = _outline_notice(len(every), len(headings), depth)
    return {**answer, "notice": notice} if notice else answer


def _outline_notice(every: int, within_depth: int, depth: int) -> str:
    if not every:
        return "The document has no headings. Use documents_get_document to read its text."
    if not within_depth:
        return f"All {every} headings are deeper than level {depth}. Use a greater maxDepth."
    if within_depth > MAX_HEADINGS:
        return f"Shows the first {MAX_HEADINGS} of {within_depth} headings. Use a smaller maxDepth to see all sections."
    return ""


def get_section(archive: Archive, arguments: Json, call: Call) -> Json:
    given = Arguments(arguments)
    heading = given.text("section", at_most=MAX_NAME_CHARS)
    include_subsections = given.flag("includeSubsections", True)
    collection, document = find_document(archive, given)
    section = find_section(document.content, heading, include_subsections)
    if section is None:
        raise _section_not_found(heading, document.id, document.content)
    answer: Json = {
        **collection_fields(collection),
        "document": document.id,
        "section": section.heading,
        "level": section.level,
        "content": section.content,
        "startLine": section.start_line,
        "endLine": section.end_line,
    }
    if section.candidates:
        answer["candidates"] = list(section.candidates)
        answer["notice"] = "Other headings match as well. To read one of them, pass its entry in `candidates`."
    return answer


def _section_not_found(section: str, document: str, content: str) -> ToolError:
    headings = list(dict.fromkeys(heading.text for heading in outline(content)))
    near = nearest(section, headings[:MAX_COMPARED])
    if near:
        help_ = f"Did you mean {join_names(near)}? Use documents_get_outline to see all headings."
    elif headings:
        help_ = "Use documents_get_outline to see its headings."
    else:
        help_ = "It has no headings. Use documents_get_document to read its text."
    return ToolError(
        f'Section "{section}" not found in document "{document}".', code="not_found", help=help_, candidates=near
    )


DOCUMENTS_GET_DOCUMENT = ArchiveTool(
    name="documents_get_document",
    title="Read a whole document",
    description=(
        "Get the full content of a document by its ID: open, read or show the complete, entire text of a guide, "
        "policy, article, page or search hit. Gives the whole of it from start to finish, for when an excerpt is not "
        "enough. For one part there is documents_get_section; for source code, read_file."
    ),
    input_schema={
        "type": "object",
        "properties": {"collection": COLLECTION_PARAMETER, "document": DOCUMENT_PARAMETER},
        "required": ["collection", "document"],
    },
    output_schema={
        "type": "object",
        "properties": {
            **COLLECTION_SCHEMA,
            "document": {"type": "string"},
            "title": {"type": "string"},
            "content": {"type": "string"},
        },
        "required": ["collection", "document", "title", "content"],
    },
    run=get_document,
)

DOCUMENTS_GET_OUTLINE = ArchiveTool(
    name="documents_get_outline",
    title="Table of contents of a document",
    description=(
        "Get the outline of a document, its headings: which chapters, sections and topics a guide, manual, paper or "
        "handbook has, with levels and line numbers. Shows its structure or skeleton, how the chapters are organized, "
        "before you read it. Headings only, without the text."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "collection": COLLECTION_PARAMETER,
            "document": DOCUMENT_PARAMETER,
            "maxDepth": {
                "type": "integer",
                "minimum": 1,
                "maximum": 6,
                "default": DEFAULT_DEPTH,
                "description": "Maximum heading depth (1-6)",
            },
        },
        "required": ["collection", "document"],
    },
    output_schema={
        "type": "object",
        "properties": {
            **COLLECTION_SCHEMA,
            "document": {"type": "string"},
            "title": {"type": "string"},
            "outline": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "level": {"type": "integer", "minimum": 1, "maximum": 6},
                        "text": {"type": "string"},
                        "line": {"type": "integer", "minimum": 1},
                    },
                    "required": ["level", "text", "line"],
                },
            },
            "notice": {"type": "string"},
        },
        "required": ["collection", "document", "title", "outline"],
    },
    run=get_outline,
)

DOCUMENTS_GET_SECTION = ArchiveTool(
    name="documents_get_section",
    title="Read a section",
    description=(
        "Get a specific section of a document by its heading: read only one chapter, part or paragraph of a guide, "
        "manual or contract, just that part without the rest, not all of it. Some words of the heading will do; "
        "`Install > Linux` means the Linux below Install, and `Notes (2)` the second Notes."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "collection": COLLECTION_PARAMETER,
            "document": DOCUMENT_PARAMETER,
            "section": {"type": "string", "description": "Section heading text to match"},
            "includeSubsections": {"type": "boolean", "default": True, "description": "Include nested subsections"},
        },
        "required": ["collection", "document", "section"],
    },
    output_schema={
        "type": "object",
        "properties": {
            **COLLECTION_SCHEMA,
            "document": {"type": "string"},
            "section": {"type": "string", "description": "The heading that was found"},
            "level": {"type": "integer", "minimum": 1, "maximum": 6},
            "content": {"type": "string"},
            "startLine": {"type": "integer", "minimum": 1},
            "endLine": {"type": "integer", "minimum": 1},
            "candidates": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Other headings that fit as well, each as you would ask for it",
            },
            "notice": {"type": "string"},
        },
        "required": ["collection", "document", "section", "level", "content", "startLine", "endLine"],
    },
    run=get_section,
)
