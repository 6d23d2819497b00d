"""The shape of an archive tool, and the error that it raises."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pointsman.archive.store.errors import NameTakenError, StoreError, UnknownCollectionError
from pointsman.archive.tools.example_requests import load_example_requests
from pointsman.core.errors import BundledCode
from pointsman.core.model import Json

if TYPE_CHECKING:
    from pointsman.archive.archive import Archive


class ToolError(Exception):
    """Becomes an answer with `isError`: the specification's text to the letter, then the next step (`help`).

    `as_object`: the specification defines this error as a JSON object, so the text is one, with `help` as a key.
    """

    def __init__(
        self,
        error: str,
        *,
        code: BundledCode,
        help: str = "",  # noqa: A002
        as_object: bool = False,
        **fields: Any,
    ) -> None:
        super().__init__(error)
        self.error = error
        self.code: BundledCode = code
        self.tool = ""  # set by the tool runner
        self.help = help
        self.as_object = as_object
        self.fields = fields

    @property
    def structured(self) -> Json:
        named = {"tool": self.tool} if self.tool else {}
        return {
            "error": self.error,
            **self.fields,
            **named,
            "code": self.code,
            **({"help": self.help} if self.help else {}),
        }

    @property
    def text(self) -> str:
        if self.as_object:
            return json.dumps(self.structured, ensure_ascii=False)
        return f"{self.error} {self.help}".rstrip()


def store_code(error: StoreError) -> BundledCode:
    """Also for a collection that was removed after the tool had found it."""
    if isinstance(error, UnknownCollectionError):
        return "not_found"
    return "already_exists" if isinstance(error, NameTakenError) else "store_unavailable"


def store_help(error: StoreError) -> str:
    """The next step where the error's own text, which a specification fixes, has none."""
    if isinstance(error, UnknownCollectionError):
        return "Call documents_list_collections to see the collections."
    return ""


@dataclass(frozen=True, slots=True)
class Call:
    """The caller of a tool: an opaque name made by the gateway, stable for each caller."""

    caller: str = ""


@dataclass(frozen=True, slots=True)
class ArchiveTool:
    name: str
    title: str
    description: str
    input_schema: Json
    output_schema: Json
    run: Callable[[Archive, Json, Call], Json]  # in a worker thread; raises ToolError, StoreError
    read_only: bool = True
    idempotent: bool = True

    @property
    def example_requests(self) -> tuple[str, ...]:
        return load_example_requests().get(self.name, ())
