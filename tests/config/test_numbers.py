"""A key that takes a number takes no boolean: pydantic would read `true` as 1."""

from __future__ import annotations

from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import pytest
from pydantic import ValidationError

from pointsman.config.errors import ConfigError
from pointsman.config.loader import parse
from pointsman.config.model import GatewayConfig
from pointsman.config.sections.part import Part


def test_true_is_no_number_of_workers() -> None:
    with pytest.raises(ConfigError, match=r"^f\.yaml:1:10: workers: must be a number, not true or false$"):
        parse("workers: true", "f.yaml", {})


def _parts(part: type[Part]) -> Iterator[type[Part]]:
    yield part
    for field in part.model_fields.values():
        yield from _parts_in(field.annotation)


def _parts_in(annotation: Any) -> Iterator[type[Part]]:
    if isinstance(annotation, type) and get_origin(annotation) is None and issubclass(annotation, Part):
        yield from _parts(annotation)
    for inner in get_args(annotation):
        yield from _parts_in(inner)


def _kinds(annotation: Any) -> set[Any]:
    """The plain types that a value may have."""
    if get_origin(annotation) is Annotated:
        return _kinds(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return set[Any]().union(*map(_kinds, get_args(annotation)))
    return {annotation}


NUMBERS = sorted(
    {
        (part.__name__, name, part)
        for part in _parts(GatewayConfig)
        for name, field in part.model_fields.items()
        if _kinds(field.annotation) & {int, float} and bool not in _kinds(field.annotation)
    },
    key=str,
)


def test_the_numbers_of_the_model_were_found() -> None:
    assert {("GatewayConfig", "workers"), ("Listen", "port"), ("Log", "files"), ("Timeouts", "call_s")} <= {
        (part, name) for part, name, _ in NUMBERS
    }


@pytest.mark.parametrize("value", [True, False])
@pytest.mark.parametrize(("part", "name", "model"), NUMBERS)
def test_no_number_of_the_configuration_is_a_boolean(part: str, name: str, model: type[Part], value: bool) -> None:
    with pytest.raises(ValidationError) as caught:
        model.model_validate({name: value})
    (found,) = [error for error in caught.value.errors() if error["loc"][:1] == (name,)]
    assert "must be a number" in found["msg"]
