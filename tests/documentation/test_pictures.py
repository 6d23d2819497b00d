"""The terminal pictures show what the program says today."""

from __future__ import annotations

import re

import pytest

from tests.documentation.pictures import FOLDER, TITLES, drawn, recorded, text_of
from tests.e2e.foreign_servers import needs_pypi

CHANGING = re.compile(r"\d[\d.,:T+-]*|\b(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day\b")  # figures, days of the week
LIMIT_BYTES = 60_000


def lines(svg: str) -> list[str]:
    """What must be the same in every run: no figures, days or columns, and no log lines, whose order may change."""
    return [" ".join(CHANGING.sub("0", line).split()) for line in text_of(svg) if " INFO " not in line]


class TestPictures:
    pytestmark = needs_pypi

    async def test_a_new_recording_shows_the_same(self) -> None:
        for name, text in (await recorded()).items():
            picture = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
            assert lines(drawn(TITLES[name], text)) == lines(picture), "run `make pictures`"


@pytest.mark.parametrize("name", TITLES)
def test_a_picture_is_small_and_holds_no_token_and_no_script(name: str) -> None:
    picture = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    assert len(picture) < LIMIT_BYTES
    assert not re.search(r"ptm_\w|<script|href=", picture)


def test_every_picture_is_known() -> None:
    assert {file.stem for file in FOLDER.iterdir()} == set(TITLES)


def test_a_long_line_is_wrapped_between_words_and_escaped() -> None:
    svg = drawn("<title>", "\x1b[31m" + "a<b & " * 30 + "\x1b[0m")
    shown = text_of(svg)
    assert all(len(line) <= 100 for line in shown)
    assert "".join(shown).strip() == ("a<b & " * 30).strip()
    assert "<title>&lt;title&gt;</title>" in svg
