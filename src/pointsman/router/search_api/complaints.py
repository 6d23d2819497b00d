"""What is wrong with a field of a request, in a short sentence that repeats nothing of its value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

_SENTENCES: Mapping[str, str | Callable[[Mapping[str, Any]], str]] = {
    "missing": "is missing",
    "string_type": "must be a string",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "int_type": "must be a whole number",
    "string_too_short": "must not be empty",
    "too_short": "must not be empty",
    "string_too_long": lambda context: f"must have at most {context['max_length']} characters",
    "greater_than_equal": lambda context: f"must be at least {context['ge']}",
    "less_than_equal": lambda context: f"must be at most {context['le']}",
}
_ALTERNATIVES = "query"  # a string or a list of them: pydantic complains once for each
_QUERY = "`query` must be a string, or a list of one or more strings"


def complaint(error: ValidationError, where: str) -> str:
    """About the first field that is wrong; `where` is the place of the whole in the request."""
    details = error.errors(include_url=False, include_input=False)
    detail = details[0]
    if detail["loc"][:1] == (_ALTERNATIVES,) and detail["type"] != "missing":
        long = next((each for each in details if each["type"] == "string_too_long"), None)
        return f"{_QUERY}, each of at most {long.get('ctx', {})['max_length']} characters." if long else f"{_QUERY}."
    path = ".".join([where] * bool(where) + [str(step) for step in detail["loc"]])
    known = _SENTENCES.get(detail["type"], "is not valid")
    sentence = known if isinstance(known, str) else known(detail.get("ctx", {}))
    return f"`{path}` {sentence}. /openapi.json describes what a request holds."
