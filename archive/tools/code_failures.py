"""What the code tools answer when a root is at fault."""

from __future__ import annotations

from typing import Any

from pointsman.archive.code.roots import HOW_TO_SET, RootGone
from pointsman.archive.tools.base import ToolFailure


def no_roots(**fields: Any) -> ToolFailure:
    return ToolFailure("No roots configured", help=HOW_TO_SET, as_object=True, **fields)


def root_gone(error: RootGone, **fields: Any) -> ToolFailure:
    return ToolFailure(
        "Root not found",
        details=f"The folder of the root `{error}` is not there.",
        help="The operator corrects it under `roots` of the archive's entry in pointsman.yaml.",
        as_object=True,
        **fields,
    )
