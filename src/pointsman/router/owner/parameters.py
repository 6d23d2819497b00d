"""Reads the parameters of an operation. Each raises OwnerError: it is not what the operation expects."""

from __future__ import annotations

from pointsman.core.model import Json
from pointsman.router.owner.channel import OwnerError


def read_text(given: Json, name: str) -> str:
    value = given.get(name)
    if not isinstance(value, str):
        raise OwnerError("invalid_request", f"`{name}` must be a string.")
    return value


def read_texts(given: Json, name: str) -> list[str]:
    value = given.get(name)
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise OwnerError("invalid_request", f"`{name}` must be a list of strings.")
    return value


def read_objects(given: Json, name: str) -> list[Json]:
    value = given.get(name)
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise OwnerError("invalid_request", f"`{name}` must be a list of objects.")
    return value


def read_object(given: Json, name: str) -> Json:
    value = given.get(name, {})
    if not isinstance(value, dict):
        raise OwnerError("invalid_request", f"`{name}` must be an object.")
    return value


def read_words(given: Json) -> dict[str, str]:
    words = read_object(given, "words")
    if not all(isinstance(word, str) for word in words.values()):
        raise OwnerError("invalid_request", "`words` must be an object of strings.")
    return words


def read_count(given: Json) -> int:
    value = given.get("maxResults", 10)
    if type(value) is not int:
        raise OwnerError("invalid_request", "`maxResults` must be a whole number.")
    return value
