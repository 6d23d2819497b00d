"""Links between the pages lead somewhere, and the files that the pages name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")})
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
CODE = re.compile(r"`[^`\n]*`")
HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
SOURCE = re.compile(
    r"`((?:src|tests|bench|examples|docs|core|config|providers|catalog|router|archive)/[\w./-]*?)/?(?:::\w+)?`"
)


def anchors(page: Path) -> set[str]:
    """The anchors that a forge gives to the headings of a page."""
    headings = HEADING.findall(FENCE.sub("", page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_page_and_a_heading(page: Path) -> None:
    for path, anchor in LINK.findall(CODE.sub("", FENCE.sub("", page.read_text(encoding="utf-8")))):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), path
        assert not anchor or anchor in anchors(target), f"{path}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    for path in SOURCE.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        assert (ROOT / path).exists() or (ROOT / "src/pointsman" / path).exists(), path


def test_every_page_is_reached_from_the_index_in_two_clicks() -> None:
    def linked(page: Path) -> set[Path]:
        text = CODE.sub("", FENCE.sub("", page.read_text(encoding="utf-8")))
        return {(page.parent / path).resolve() for path, _ in LINK.findall(text) if path.endswith(".md")}

    first = linked(ROOT / "docs/README.md")
    reached = first | {page for one in first for page in linked(one)}
    assert {page.resolve() for page in (ROOT / "docs").rglob("*.md")} <= reached | {ROOT / "docs/README.md"}
