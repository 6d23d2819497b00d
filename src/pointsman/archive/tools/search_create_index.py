"""`search_create_index`: a new, empty index."""

from __future__ import annotations

import re
from typing import get_args

from pointsman.archive.archive import Archive
from pointsman.archive.model.indexes import Backend, IndexFullError, Tokenizer
from pointsman.archive.tools.arguments import Arguments
from pointsman.archive.tools.base import ArchiveTool, Call, Json, ToolError

BACKENDS: tuple[Backend, ...] = get_args(Backend)
LONGEST_NAME = 64
LONGEST_MIN_LENGTH = 20
_NAME = re.compile(r"[A-Za-z0-9_-]+")


def run(archive: Archive, arguments: Json, call: Call) -> Json:
    given = Arguments(arguments, as_object=True)
    name = _name(given)
    backend = _backend(arguments.get("backend"))
    config = given.inside("tokenizer_config")
    tokenizer = Tokenizer(
        config.flag("lowercase", True), config.integer("min_length", low=1, high=LONGEST_MIN_LENGTH, default=2)
    )
    try:
        created = archive.indexes.create(name, backend, tokenizer)
    except IndexFullError as error:
        raise ToolError("Too many indexes", code="limit_reached", help=str(error), as_object=True) from None
    if not created:
        raise ToolError(
            f"Index already exists: {name}",
            code="already_exists",
            help="Add documents to it with search_add_document, or choose another name.",
            as_object=True,
        )
    return {
        "status": "created",
        "index_name": name,
        "backend": backend,
        "tokenizer_config": {"lowercase": tokenizer.lowercase, "min_length": tokenizer.min_length},
    }


def _name(given: Arguments) -> str:
    name = given.text("index_name")
    if len(name) > LONGEST_NAME or not _NAME.fullmatch(name):
        raise given.failure("index_name", f"must be 1 to {LONGEST_NAME} letters, digits, `-` and `_`")
    return name


def _backend(value: object) -> Backend:
    if value is None:
        return "memory"
    for backend in BACKENDS:
        if value == backend:
            return backend
    raise ToolError(
        f"Unknown backend: {str(value)[:100]}",
        code="invalid_parameters",
        help="Use `memory` or `sqlite`.",
        as_object=True,
    )


TOOL = ArchiveTool(
    name="search_create_index",
    title="Create a search index",
    description=(
        "Create a new, empty full-text search index and name it: set up, make or start another, fresh index as a "
        "place for texts of your own. With the backend `memory` (the default) it is gone when the archive "
        "restarts; with `sqlite` it is kept. The tokenizer can keep upper case apart and leave out short words. "
        "Fails when the name is taken; `default` is always there. Callers of this archive share their indexes."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "index_name": {
                "type": "string",
                "description": "Name of the new index: letters, digits, - and _",
                "pattern": "^[A-Za-z0-9_-]+$",
                "minLength": 1,
                "maxLength": LONGEST_NAME,
            },
            "backend": {
                "type": "string",
                "description": "Where it is kept: memory (gone at a restart) or sqlite (kept)",
                "enum": list(BACKENDS),
                "default": "memory",
            },
            "tokenizer_config": {
                "type": "object",
                "description": "How text is cut into words",
                "properties": {
                    "lowercase": {"type": "boolean", "description": "Fold upper case", "default": True},
                    "min_length": {
                        "type": "integer",
                        "description": "Shorter words cannot be looked for",
                        "minimum": 1,
                        "maximum": LONGEST_MIN_LENGTH,
                        "default": 2,
                    },
                },
            },
        },
        "required": ["index_name"],
    },
    output_schema={
        "type": "object",
        "properties": {
            "status": {"type": "string", "enum": ["created"]},
            "index_name": {"type": "string"},
            "backend": {"type": "string", "enum": list(BACKENDS)},
            "tokenizer_config": {
                "type": "object",
                "properties": {"lowercase": {"type": "boolean"}, "min_length": {"type": "integer"}},
            },
        },
        "required": ["status", "index_name", "backend"],
    },
    run=run,
    read_only=False,
    idempotent=False,
)
