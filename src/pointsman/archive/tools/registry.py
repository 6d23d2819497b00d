"""All tools of the archive, in the order in which they are listed."""

from __future__ import annotations

from pointsman.archive.tools.base import ArchiveTool
from pointsman.archive.tools.codebase import GREP_CODEBASE, READ_FILE
from pointsman.archive.tools.context_search import CONTEXT_SEARCH
from pointsman.archive.tools.documents_browse import DOCUMENTS_LIST_COLLECTIONS, DOCUMENTS_LIST_DOCUMENTS
from pointsman.archive.tools.documents_read import (
    DOCUMENTS_GET_DOCUMENT,
    DOCUMENTS_GET_OUTLINE,
    DOCUMENTS_GET_SECTION,
)
from pointsman.archive.tools.documents_search import (
    DOCUMENTS_FIND_RELATED,
    DOCUMENTS_SEARCH,
    DOCUMENTS_SEARCH_BATCH,
)
from pointsman.archive.tools.search_indexes import SEARCH_ADD_DOCUMENT, SEARCH_CREATE_INDEX, SEARCH_INDEX
from pointsman.archive.tools.search_local_archives import SEARCH_LOCAL_ARCHIVES

TOOLS: tuple[ArchiveTool, ...] = (
    DOCUMENTS_SEARCH,
    DOCUMENTS_SEARCH_BATCH,
    DOCUMENTS_FIND_RELATED,
    DOCUMENTS_LIST_COLLECTIONS,
    DOCUMENTS_LIST_DOCUMENTS,
    DOCUMENTS_GET_DOCUMENT,
    DOCUMENTS_GET_OUTLINE,
    DOCUMENTS_GET_SECTION,
    SEARCH_CREATE_INDEX,
    SEARCH_ADD_DOCUMENT,
    SEARCH_INDEX,
    CONTEXT_SEARCH,
    READ_FILE,
    GREP_CODEBASE,
    SEARCH_LOCAL_ARCHIVES,
)
