"""What the code tools answer when a root is at fault, or a path that they do not take."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pointsman.archive.code.guard import (
    ABSOLUTE,
    NEVER_READ,
    OUTSIDE,
    AccessDeniedError,
    PathNotFoundError,
    checked_parts,
)
from pointsman.archive.code.roots import HOW_TO_SET, RootGoneError, relative_form
from pointsman.archive.tools.base import ToolError

_HELP = {
    OUTSIDE: "A path stays inside the project's root, also through links, with / between folders.",
    NEVER_READ: "Secrets, .git and node_modules are neither read nor searched.",
}


def denied_help(roots: Mapping[str, Path], path: str, details: str) -> str:
    """The next step after a refusal. `path` may be a glob."""
    if details != ABSOLUTE:
        return _HELP.get(details, "")
    relative = relative_form(roots, path) if roots else None
    if relative is None or not _may_be_asked(relative):
        return "Paths are relative to the project's root, as grep_codebase shows them."
    return f"Paths are relative to the project's root: ask for `{relative}`."


def _may_be_asked(path: str) -> bool:
    try:
        checked_parts(path)
    except (AccessDeniedError, PathNotFoundError):
        return False
    return True


def no_roots(**fields: Any) -> ToolError:
    return ToolError("No roots configured", code="not_configured", help=HOW_TO_SET, as_object=True, **fields)


def root_gone(error: RootGoneError, **fields: Any) -> ToolError:
    return ToolError(
        "Root not found",
        code="not_configured",
        details=f"The folder of the root `{error}` is not there.",
        help="The operator corrects it under `roots` of the archive's entry in pointsman.yaml.",
        as_object=True,
        **fields,
    )
