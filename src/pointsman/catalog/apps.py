"""MCP Apps (extension SEP-1865): tools that name a page for their results, and clients that can show it.

A page is a resource with the scheme `ui`. Its URI gets the id of its server (`names.wrap_uri`) wherever it is shown.
"""

from __future__ import annotations

from pointsman.catalog.names import is_app_uri, wrap_uri
from pointsman.core.kinds import APP_TYPE, APPS_EXTENSION, MAX_URI_CHARS
from pointsman.core.model import Json
from pointsman.providers.visible import is_visible_name

_LINK = "resourceUri"  # in `_meta.ui`
_FLAT_LINKS = ("ui/resourceUri", "openai/outputTemplate")  # the same directly in `_meta`, as older servers write it
META_KEYS = frozenset(("ui", *_FLAT_LINKS))  # of `_meta`, that may hold a link


def supports_apps(capabilities: Json) -> bool:
    """Whether a client with these capabilities can show pages."""
    extensions = capabilities.get("extensions")
    settings = extensions.get(APPS_EXTENSION) if isinstance(extensions, dict) else None
    types = settings.get("mimeTypes") if isinstance(settings, dict) else None
    return isinstance(types, list) and APP_TYPE in types


def is_for_apps_only(tool: Json) -> bool:
    """Whether only a page may call the tool, so that models must not see it."""
    visibility = _ui_of(tool.get("_meta")).get("visibility")
    return isinstance(visibility, list) and "app" in visibility and "model" not in visibility


def has_app(tool: Json) -> bool:
    """Whether a tool names a page for its results."""
    meta = tool.get("_meta")
    if not isinstance(meta, dict):
        return False
    return _is_link(_ui_of(meta).get(_LINK)) or any(_is_link(meta.get(key)) for key in _FLAT_LINKS)


def with_app_uris(server_id: str, meta: object) -> object:
    """The `_meta` of a tool or of a result, with links that lead back to its server.

    A link that is not to a page is left out: it could name a resource of another server.
    """
    if not isinstance(meta, dict) or META_KEYS.isdisjoint(meta):
        return meta
    shown = _with_links(server_id, meta, _FLAT_LINKS)
    if isinstance(meta.get("ui"), dict):
        shown["ui"] = _with_links(server_id, meta["ui"], (_LINK,))
    return shown


def _with_links(server_id: str, fields: Json, keys: tuple[str, ...]) -> Json:
    shown = dict(fields)
    for key in keys:
        if key in fields:
            del shown[key]
            if _is_link(fields[key]):
                shown[key] = wrap_uri(server_id, fields[key])
    return shown


def _ui_of(meta: object) -> Json:
    ui = meta.get("ui") if isinstance(meta, dict) else None
    return ui if isinstance(ui, dict) else {}


def _is_link(value: object) -> bool:
    return isinstance(value, str) and len(value) <= MAX_URI_CHARS and is_app_uri(value) and is_visible_name(value)
