"""Turns pydantic's validation errors into problems with a position, in short sentences."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from pointsman.config.errors import closest
from pointsman.config.model import GatewayConfig
from pointsman.config.sections.part import Part
from pointsman.config.sections.server import Server
from pointsman.config.sections.value_types import DIGEST_PATTERN, ID_PATTERN, PREFIX_PATTERN
from pointsman.config.yaml.document import Document, KeyPath

MAX_EXPLAINED = 100
_MORE_KEYS: Mapping[type[Part], tuple[str, ...]] = {  # of pasted blocks
    GatewayConfig: ("mcpServers",),
    Server: ("serverUrl", "httpUrl", "disabled", "autoApprove", "alwaysAllow"),
}
_KEY_ITSELF = "[key]"  # pydantic's last step if the key of a mapping is wrong and not its value


def explain(error: ValidationError, document: Document) -> None:
    """Add the errors to the document's problems, at most MAX_EXPLAINED of them.

    Finding the position of one takes time in proportion to the file's size, so all of them could take hours.
    """
    details = error.errors(include_url=False)
    if len(details) > MAX_EXPLAINED:
        document.add_problem((), f"{len(details) - MAX_EXPLAINED} more problems not listed")
    for detail in details[:MAX_EXPLAINED]:
        path = _as_written(detail["loc"], document)
        wrong_key = path[-1:] == (_KEY_ITSELF,)
        if wrong_key:
            path = path[:-1]
        if document.is_unresolved(path):
            continue  # already reported, with the real reason
        if detail["type"] == "extra_forbidden":
            document.add_problem(path, "unknown key", _closest_key(path), key=True)
            continue
        hint = _closest_choice(detail, document.external_texts) if detail["type"] == "literal_error" else None
        document.add_problem(path, sentence(detail) + _more(path, detail), hint, key=wrong_key)


def _more(path: KeyPath, detail: ErrorDetails) -> str:
    """What to write instead, where that is not plain."""
    if path[-1:] == ("optimization",):
        return ", or `off`"
    if path[-1:] == ("sandbox",):
        return "; `{}` is the strictest sandbox, and `{read: [...], write: [...], network: true}` allows more"
    return ""


def _as_written(path: KeyPath, document: Document) -> KeyPath:
    """The one issuer of `auth` may be written without a list."""
    listed = isinstance(document.data, dict) and isinstance(document.data.get("auth"), list)
    return ("auth", *path[2:]) if path[:1] == ("auth",) and not listed else path


def sentence(detail: ErrorDetails) -> str:
    context = detail.get("ctx", {})
    known = _SENTENCES.get(detail["type"])
    if known is None:
        return "is not valid"
    return known if isinstance(known, str) else known(context)


def choices_of(detail: ErrorDetails) -> list[str]:
    return re.findall(r"'([^']*)'", str(detail.get("ctx", {}).get("expected", "")))


def _one_of(context: Mapping[str, Any]) -> str:
    return f"must be {context['expected']}".replace("'", "`")


_PATTERNS = {
    ID_PATTERN: "an id may contain letters, digits, `_` and `-`, but not `__`",
    PREFIX_PATTERN: 'a prefix may contain letters, digits, `_`, `.` and `-`; "" means no prefix',
    DIGEST_PATTERN: "must be the SHA-256 of a token's secret, 64 hexadecimal digits; "
    "`pointsman token create` creates one",
}
_SENTENCES: Mapping[str, str | Callable[[Mapping[str, Any]], str]] = {
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float", "int_parsing_size"), "must be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing", "finite_number"), "must be a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
    **dict.fromkeys(("string_type", "path_type"), "must be text; quote it"),
    **dict.fromkeys(("tuple_type", "list_type"), "must be a list, like [first, second]"),
    **dict.fromkeys(
        ("model_type", "model_attributes_type", "dict_type", "mapping_type"), "must be a mapping of keys to values"
    ),
    "missing": "is missing",
    "literal_error": _one_of,
    "string_pattern_mismatch": lambda context: _PATTERNS[context["pattern"]],
    "string_too_short": "must not be empty",
    "string_too_long": lambda context: f"must have at most {context['max_length']} characters",
    "greater_than": lambda context: f"must be more than {context['gt']:g}",
    "greater_than_equal": lambda context: f"must be at least {context['ge']:g}",
    "less_than_equal": lambda context: f"must be at most {context['le']:g}",
    "value_error": lambda context: str(context["error"]),
}


def _closest_choice(detail: ErrorDetails, secrets: Iterable[str]) -> str | None:
    given = detail["input"]
    return closest(given, choices_of(detail)) if isinstance(given, str) and given not in secrets else None


def _closest_key(path: KeyPath) -> str | None:
    part = _part_at(path[:-1])
    fields = {*part.model_fields, *_MORE_KEYS.get(part, ())}
    return closest(str(path[-1]), fields)


def _part_at(path: KeyPath) -> type[Part]:
    """The part of the model that `path` leads to."""
    part: type[Part] = GatewayConfig
    steps = iter([step for step in path if isinstance(step, str)])  # without positions in lists
    for step in steps:
        annotation = part.model_fields[str(step)].annotation
        part = _part_in(annotation) or part
        if get_origin(annotation) is Mapping:
            next(steps, None)  # an id
    return part


def _part_in(annotation: Any) -> type[Part] | None:
    if isinstance(annotation, type) and get_origin(annotation) is None and issubclass(annotation, Part):
        return annotation
    return next((part for inner in get_args(annotation) if (part := _part_in(inner))), None)
