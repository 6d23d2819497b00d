"""Sections found by their headings."""

from __future__ import annotations

from pointsman.archive.text.sections import MAX_CANDIDATES, Section, find_section

PAGE = """\
# Guide

Intro.

## Usage

How to.

### Advanced usage

More.

```
## Not a heading
```

## API

### Usage

Of the API.

## `configure()` and [friends](x.md) {#conf}

Set up.

Usage notes
-----------

The end.
"""


def found(section: str, include_subsections: bool = True) -> Section:
    answer = find_section(PAGE, section, include_subsections)
    assert answer is not None
    return answer


def test_a_section_goes_to_the_next_heading_of_its_level() -> None:
    usage = found("usage")
    assert (usage.heading, usage.level, usage.start_line, usage.end_line) == ("Usage", 2, 5, 15)
    assert usage.content == "\n".join(PAGE.split("\n")[4:15])


def test_without_subsections_it_stops_at_any_heading() -> None:
    assert found("usage", include_subsections=False).content == "## Usage\n\nHow to."
    assert found("Guide", include_subsections=False).content == "# Guide\n\nIntro."


def test_the_same_text_comes_before_a_beginning_and_a_beginning_before_a_part() -> None:
    assert found("usage").heading == "Usage"
    assert found("usage n").heading == "Usage notes"
    assert found("usa").candidates == ("API > Usage", "Usage notes", "Advanced usage")
    assert found("vanced").heading == "Advanced usage"


def test_the_others_that_say_the_same_are_candidates_that_find_them() -> None:
    usage = found("Usage")
    assert usage.candidates == ("API > Usage",)
    assert found(usage.candidates[0]).start_line == 19


def test_duplicates_are_found_by_number_and_by_path() -> None:
    assert found("Usage (2)").content == found("api > usage").content == "### Usage\n\nOf the API."
    assert found("Guide > API > Usage").start_line == 19
    assert find_section(PAGE, "Usage (3)", True) is None
    assert find_section(PAGE, "Usage > API", True) is None


def test_duplicates_below_the_same_heading_are_candidates_by_number() -> None:
    text = "# A\n## X\none\n## X\ntwo\n"
    answer = find_section(text, "x", True)
    assert answer is not None
    assert answer.candidates == ("X (2)",)
    second = find_section(text, "X (2)", True)
    assert second is not None
    assert second.content == "## X\ntwo"


def test_marks_links_and_anchors_need_not_be_written() -> None:
    assert found("configure() and friends").start_line == 23
    assert found("## `configure()` and [friends](x.md)").start_line == 23


def test_underlined_headings_have_sections_too() -> None:
    assert found("Usage notes").content == "Usage notes\n-----------\n\nThe end."


def test_what_is_not_there_is_not_found() -> None:
    assert find_section(PAGE, "Not a heading", True) is None
    assert find_section(PAGE, " ", True) is None
    assert find_section("no headings", "no", True) is None


def test_a_heading_with_a_number_or_an_arrow_is_found_as_written() -> None:
    text = "# Usage\n# Usage (2)\nliteral\n# A > B\narrow\n# A\n## B\n"
    for asked, content in (("usage (2)", "# Usage (2)\nliteral"), ("A > B", "# A > B\narrow")):
        answer = find_section(text, asked, True)
        assert answer is not None
        assert answer.content == content


def test_candidates_are_bounded() -> None:
    answer = find_section("".join(f"# Part {number}\n" for number in range(1000)), "part", True)
    assert answer is not None
    assert len(answer.candidates) == MAX_CANDIDATES
