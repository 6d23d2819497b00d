"""`documents_get_section`: one section of a document, by its heading."""

from __future__ import annotations

from pointsman.archive.archive import Archive
from pointsman.archive.text.outline import outline
from pointsman.archive.text.sections import find_section
from pointsman.archive.text.similar_names import nearest
from pointsman.archive.tools.arguments import Arguments
from pointsman.archive.tools.base import ArchiveTool, Call, Json, ToolError
from pointsman.archive.tools.collections import (
    COLLECTION,
    DOCUMENT,
    LONGEST_NAME,
    NAMED,
    find_collection,
    find_document,
    listed,
    shown,
)

NAMES_COMPARED = 5_000


def run(archive: Archive, arguments: Json, call: Call) -> Json:
    given = Arguments(arguments)
    asked_as = given.text("collection", at_most=LONGEST_NAME)
    id_ = given.text("document", at_most=LONGEST_NAME)
    wanted = given.text("section", at_most=LONGEST_NAME)
    include_subsections = given.flag("includeSubsections", True)
    collection = find_collection(archive, asked_as)
    document = find_document(archive, collection, asked_as, id_)
    section = find_section(document.content, wanted, include_subsections)
    if section is None:
        raise _no_section(wanted, id_, document.content)
    answer: Json = {
        **shown(collection),
        "document": document.id,
        "section": section.heading,
        "level": section.level,
        "content": section.content,
        "startLine": section.start_line,
        "endLine": section.end_line,
    }
    if section.candidates:
        answer["candidates"] = list(section.candidates)
        answer["notice"] = "Other headings fit as well; ask for one of `candidates` to get it instead."
    return answer


def _no_section(section: str, document: str, content: str) -> ToolError:
    headings = list(dict.fromkeys(heading.text for heading in outline(content)))
    near = nearest(section, headings[:NAMES_COMPARED])
    if near:
        help_ = f"Did you mean {listed(near)}? documents_get_outline shows all headings."
    elif headings:
        help_ = "documents_get_outline shows its headings."
    else:
        help_ = "It has no headings. documents_get_document has its text."
    return ToolError(
        f'Section "{section}" not found in document "{document}".', code="not_found", help=help_, candidates=near
    )


TOOL = ArchiveTool(
    name="documents_get_section",
    title="Read a section",
    description=(
        "Read only one section, chapter, part or paragraph of a document, guide, manual or page, by its heading: "
        "what is written or said below that heading, without the rest. Use this when you know which section you "
        "need. Upper and lower case do not matter, a part of the heading will do; `Install > Linux` means the "
        "Linux below Install, and `Usage (2)` the second Usage."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "collection": COLLECTION,
            "document": DOCUMENT,
            "section": {"type": "string", "description": "Section heading text to match"},
            "includeSubsections": {"type": "boolean", "default": True, "description": "Include nested subsections"},
        },
        "required": ["collection", "document", "section"],
    },
    output_schema={
        "type": "object",
        "properties": {
            **NAMED,
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
    run=run,
)
