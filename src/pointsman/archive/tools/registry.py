"""All tools of the archive, in the order in which they are listed."""

from __future__ import annotations

from pointsman.archive.tools import (
    context_search,
    documents_find_related,
    documents_get_document,
    documents_get_outline,
    documents_get_section,
    documents_list_collections,
    documents_list_documents,
    documents_search,
    documents_search_batch,
    grep_codebase,
    read_file,
    search_add_document,
    search_create_index,
    search_index,
    search_local_archives,
)
from pointsman.archive.tools.base import ArchiveTool

TOOLS: tuple[ArchiveTool, ...] = (
    documents_search.TOOL,
    documents_search_batch.TOOL,
    documents_find_related.TOOL,
    documents_list_collections.TOOL,
    documents_list_documents.TOOL,
    documents_get_document.TOOL,
    documents_get_outline.TOOL,
    documents_get_section.TOOL,
    search_create_index.TOOL,
    search_add_document.TOOL,
    search_index.TOOL,
    context_search.TOOL,
    read_file.TOOL,
    grep_codebase.TOOL,
    search_local_archives.TOOL,
)
