"""Front matter: valid, invalid and hostile."""

from __future__ import annotations

from itertools import pairwise

import pytest

from pointsman.archive.text.front_matter import FrontMatterError, read_front_matter
from pointsman.archive.text.lines import lines_of

# A few lines that stand for hundreds of millions of values.
LAUGHS = (
    "---\na: &a [1, 1]\n"
    + "".join(f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]\n" for old, new in pairwise("abcdefghi"))
    + "---\n"
)


def read(text: str) -> dict[str, object]:
    return read_front_matter(lines_of(text))


def test_yaml_and_toml_become_plain_values() -> None:
    yaml = (
        "---\ntitle: A\ndate: 2024-05-01\nat: 2024-05-01T10:00:00\nn: [1, 2.5, true, null]\nm: {a: {b: c}}\n---\ntext"
    )
    assert read(yaml) == {
        "title": "A",
        "date": "2024-05-01",
        "at": "2024-05-01T10:00:00",
        "n": [1, 2.5, True, None],
        "m": {"a": {"b": "c"}},
    }
    assert read('+++\ntitle = "A"\ndate = 2024-05-01\n+++\ntext') == {"title": "A", "date": "2024-05-01"}


def test_text_without_it_has_none() -> None:
    assert read("text") == read("---\n\ntext\n\n---\n") == read("---\n# nothing but a comment\n---\n") == {}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("---\ntitle: a: b\n---\n", "line 2: mapping values"),
        ("---\ntitle: a\ntitle: b\n---\n", "line 3: found duplicate key"),
        ("---\n- a\n- b\n---\n", "keys and values"),
        ("---\na: !!python/object:os.system x\n---\n", "could not determine a constructor"),
        ("---\na: 2024-13-45\n---\n", "not YAML that can be read"),
        ("---\na: " + "[" * 5000 + "\n---\n", "nested deeper than 20"),
        (LAUGHS, "more than 5000 values"),
        ("---\na: &a [*a]\n---\n", "nested deeper than 20"),
        ("---\na: " + "x" * 70_000 + "\n---\n", "longer than 65536"),
        ("+++\ntitle = \n+++\n", "not TOML"),
    ],
    ids=lambda value: repr(value[:24]),
)
def test_what_cannot_be_understood_is_said_and_costs_nothing(text: str, reason: str) -> None:
    with pytest.raises(FrontMatterError, match=reason):
        read(text)


def test_a_day_that_no_calendar_has_is_refused_with_the_reason() -> None:
    with pytest.raises(FrontMatterError, match="month must be in"):
        read("---\ndate: 2024-13-45\n---\n")
