"""What the tools say of arguments that do not fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pointsman.archive.tools.arguments import Arguments
from pointsman.archive.tools.base import ToolError

NAME = "value"
Read = Callable[[Arguments], Any]


def text(given: Arguments) -> Any:
    return given.text(NAME, at_most=5)


def integer(given: Arguments) -> Any:
    return given.integer(NAME, low=1, high=20, default=5)


def number(given: Arguments) -> Any:
    return given.number(NAME, low=0, high=2, default=0.5)


def flag(given: Arguments) -> Any:
    return given.flag(NAME, True)


def texts(given: Arguments) -> Any:
    return given.texts(NAME, at_most=2)


def choice(given: Arguments) -> Any:
    return given.choice(NAME, ("all", "rule"), "all")


@pytest.mark.parametrize(
    ("read", "value", "expected"),
    [
        (text, "hello", "hello"),
        (integer, 20, 20),
        (integer, 3.0, 3),
        (integer, None, 5),
        (number, 1, 1.0),
        (number, None, 0.5),
        (flag, False, False),
        (flag, None, True),
        (texts, ["a", "b"], ("a", "b")),
        (texts, None, ()),
        (choice, "rule", "rule"),
        (choice, None, "all"),
    ],
)
def test_what_fits_is_returned_and_null_is_as_good_as_absent(read: Read, value: Any, expected: Any) -> None:
    assert read(Arguments({NAME: value, "unknown": 1})) == expected


@pytest.mark.parametrize(
    ("read", "value", "said"),
    [
        (text, None, "`value` must be a string of 1 to 5 characters; it is missing."),
        (text, "", '`value` must be a string of 1 to 5 characters; got "".'),
        (text, 7, "`value` must be a string of 1 to 5 characters; got 7."),
        (text, "x" * 99, "`value` must be a string of 1 to 5 characters; got a string of 99 characters."),
        (text, "\ud800", '`value` must be well-formed Unicode; got "\\ud800".'),
        (integer, "5", '`value` must be an integer from 1 to 20; got "5".'),
        (integer, True, "`value` must be an integer from 1 to 20; got true."),
        (integer, 2.5, "`value` must be an integer from 1 to 20; got 2.5."),
        (integer, 21, "`value` must be an integer from 1 to 20; got 21."),
        (integer, float("inf"), "`value` must be an integer from 1 to 20; got Infinity."),
        (number, "1", '`value` must be a number from 0 to 2; got "1".'),
        (number, float("nan"), "`value` must be a number from 0 to 2; got NaN."),
        (flag, "true", '`value` must be true or false; got "true".'),
        (flag, 0, "`value` must be true or false; got 0."),
        (texts, "a", '`value` must be a list of 0 to 2 strings; got "a".'),
        (texts, ["a", "b", "c"], "`value` must be a list of 0 to 2 strings; got a list of 3."),
        (texts, ["a", 1], "`value[1]` must be a string of at least 1 character; got 1."),
        (choice, "rules", '`value` must be one of `all`, `rule`; got "rules".'),
    ],
)
def test_what_does_not_fit_is_named_with_the_reason_and_what_is_allowed(read: Read, value: Any, said: str) -> None:
    with pytest.raises(ToolError) as refused:
        read(Arguments({NAME: value}))
    assert refused.value.text == f"Invalid parameters: {said}"
    with pytest.raises(ToolError) as refused:
        read(Arguments({NAME: value}, as_object=True))
    assert refused.value.structured["error"] == "Invalid parameters"
    assert [detail["message"] for detail in refused.value.structured["details"]] == [said]


def test_parameters_inside_others_are_named_by_their_path() -> None:
    given = Arguments({"queries": [{"limit": 1}, {"limit": 0}], "config": {"lowercase": "yes"}})
    first, second = given.each("queries", at_least=1, at_most=10)
    assert first.integer("limit", low=1, high=9) == 1
    with pytest.raises(ToolError, match=r"`queries\[1\]\.limit` must be an integer from 1 to 9; got 0"):
        second.integer("limit", low=1, high=9)
    with pytest.raises(ToolError, match=r"`config\.lowercase` must be true or false"):
        given.inside("config").flag("lowercase", True)


@pytest.mark.parametrize("queries", [None, [], "x", [{}] * 11])
def test_a_list_of_objects_has_bounds(queries: Any) -> None:
    with pytest.raises(ToolError, match="`queries` must be a list of 1 to 10 objects"):
        Arguments({"queries": queries}).each("queries", at_least=1, at_most=10)


def test_each_of_a_list_of_objects_must_be_one() -> None:
    with pytest.raises(ToolError, match=r"`queries\[1\]` must be an object; got \"vacation\""):
        Arguments({"queries": [{}, "vacation"]}).each("queries", at_least=1, at_most=10)


@pytest.mark.parametrize("config", ["x", 1, []])
def test_an_object_must_be_one(config: Any) -> None:
    with pytest.raises(ToolError, match="`config` must be an object"):
        Arguments({"config": config}).table("config")
