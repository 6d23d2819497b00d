"""The base class of every part of the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, model_validator


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
