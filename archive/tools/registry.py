"""All tools of the archive, in the order in which they are listed."""

from __future__ import annotations

from pointsman.archive.tools import search_add_document, search_create_index, search_index, search_local_archives
from pointsman.archive.tools.base import ArchiveTool

TOOLS: tuple[ArchiveTool, ...] = (
    search_create_index.TOOL,
    search_add_document.TOOL,
    search_index.TOOL,
    search_local_archives.TOOL,
)
