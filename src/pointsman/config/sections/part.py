"""The base class of every part of the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator, model_validator


class Part(BaseModel):
    """Frozen, and strict about its keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_keys_without_value(cls, data: Any) -> Any:
        """A key without a value, such as `servers:` with every entry commented out, means the default."""
        if data is None:
            return {}
        if not isinstance(data, Mapping) or None not in data.values():
            return data
        return {key: value for key, value in data.items() if value is not None or cls._takes_null(key)}

    @classmethod
    def _takes_null(cls, key: str) -> bool:
        field = cls.model_fields.get(key)
        return field is None or type(None) in get_args(field.annotation)

    @field_validator("*", mode="before")
    @classmethod
    def _reject_booleans(cls, value: Any, info: ValidationInfo) -> Any:
        """Pydantic would read `true` as 1, be it seconds, bytes or workers."""
        if isinstance(value, bool) and _is_number(cls, str(info.field_name)):
            raise ValueError("must be a number, not true or false")
        return value


@cache
def _is_number(part: type[Part], field: str) -> bool:
    kinds = _kinds(part.model_fields[field].annotation)
    return bool not in kinds and not kinds.isdisjoint((int, float))


def _kinds(annotation: Any) -> frozenset[Any]:
    """The types that a value may have, without their constraints."""
    if get_origin(annotation) is Annotated:
        return _kinds(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return frozenset[Any]().union(*map(_kinds, get_args(annotation)))
    return frozenset((annotation,))
