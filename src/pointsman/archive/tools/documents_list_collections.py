"""`documents_list_collections`: what the archive holds."""

from __future__ import annotations

from pointsman.archive.archive import Archive
from pointsman.archive.tools.base import ArchiveTool, Call, Json
from pointsman.archive.tools.collections import NAMED, shown

MOST = 500


def run(archive: Archive, arguments: Json, call: Call) -> Json:
    every = archive.storage.documents.collections()
    collections = []
    for each in every[:MOST]:
        entry: Json = {**shown(each), "documentCount": each.documents}
        if each.manifest.description:
            entry["description"] = each.manifest.description
        if each.manifest.version:
            entry["version"] = each.manifest.version
        collections.append(entry)
    answer: Json = {"collections": collections}
    if not every:
        answer["notice"] = "The archive is empty: `pointsman archive ingest` fills it."
    if len(every) > MOST:
        answer["notice"] = f"These are {MOST} of {len(every)}; any of them can be named in documents_search."
    return answer


TOOL = ArchiveTool(
    name="documents_list_collections",
    title="List collections",
    description=(
        "Show which collections of documents are there: the libraries, knowledge bases and other sources of docs "
        "and manuals that are available, with the name of each, what it is about, its version and how many "
        "documents it has. Use this to see which documentation sets are loaded and can be searched. Not for what "
        "is inside a single collection."
    ),
    input_schema={"type": "object", "properties": {}},
    output_schema={
        "type": "object",
        "properties": {
            "collections": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        **NAMED,
                        "documentCount": {"type": "integer"},
                        "description": {"type": "string"},
                        "version": {"type": "string"},
                    },
                    "required": ["collection", "documentCount"],
                },
            },
            "notice": {"type": "string"},
        },
        "required": ["collections"],
    },
    run=run,
)
