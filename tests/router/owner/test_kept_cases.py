"""The file of kept requests: added to at its end, and never rewritten otherwise."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman.router.owner.search.kept_cases import (
    EXAMPLE,
    MAX_BYTES,
    Case,
    KeptCasesError,
    keep,
    read_kept,
    read_text,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
QUERIES = TEXTS.filter(lambda text: bool(text.strip()))
KEYS = st.builds(lambda server, tool: f"{server}:{tool}", TEXTS.filter(lambda text: ":" not in text), TEXTS)
CASES = st.builds(
    Case,
    st.lists(QUERIES, min_size=1, max_size=3),
    st.lists(KEYS, min_size=1, max_size=2),
    st.integers(1, 100),
    st.none() | TEXTS,
    st.none() | TEXTS,
)


@settings(max_examples=200, deadline=None)
@given(st.lists(CASES, min_size=1, max_size=3))
def test_what_is_written_is_read_back(cases: list[Case]) -> None:
    assert read_text("\n".join(case.written() for case in cases), Path("kept.yaml")) == cases


def test_a_file_is_created_and_added_to_and_its_comments_stay(tmp_path: Path) -> None:
    path, first = tmp_path / "kept.yaml", Case(["read a file"], ["files:read"], 1)
    assert keep(path, first) == 1
    path.write_text(f"# ours\n{path.read_text().rstrip()}  # a comment without a line end")
    second = Case(["a: b", "\x1b[31m\u2028{{7*7}} 😀"], ["x:y", "x:z"], 3, "context", "attic")
    assert keep(path, second) == 2
    assert read_kept(path) == [first, second]
    assert path.read_text().startswith("# ours\n- {query:")
    assert "# a comment without a line end\n" in path.read_text()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("query: x", "must be a list of entries"),
        ("- {query: x}", "entry 1, line 1: `expected` is missing"),
        ("- 7", "entry 1, line 1: it must have `query` and `expected`"),
        (
            "# ours\n- {query: x, expected: a:b}\n\n- query: x\n  expected: a:b\n  worst_rnak: 1\n",
            "entry 2, line 4: there is no key `worst_rnak`. Did you mean `worst_rank`?",
        ),
        ("- {query: x, expected: a:b, 7: 1}", "there is no key `7`; the keys are `query`, `context`, `project`"),
        ("- {query: x, expected: a:b, worst_rank: 0}", "from 1 to 100"),
        ("- {query: [], expected: a:b}", "`query` must be a text"),
        ("- {query: '', expected: a:b}", "`query` is empty"),
        ("", "is empty. Write `[]`"),
        (" \n", "is empty. Write `[]`"),
        (f"- {{query: [{', '.join('x' * 51)}], expected: a:b}}", "entry 1, line 1: `query` has 51 queries; at most 50"),
        ("- {query: [x, ' '], expected: a:b}", "`query` is empty"),
        ("- {query: x, expected: {a: b}}", "`expected` must be a text"),
        ("- {query: x, expected: ab}", "`ab` is no tool key: write `server:tool`"),
        ("- {query: x, expected: [a:b, ':b']}", "`:b` is no tool key"),
        ("- {query: x, expected: a:b, project: 3}", "`project` must be a text"),
        (
            "- {query: x, expected: a:b}\n- {query: x,\n   expected: a:b, project: nope}",
            "entry 2, line 2: there is no project `nope`; the projects are `attic`, `sales`",
        ),
        ("- {query: x, expected: a:b}\n- [", "cannot be read: line 2: "),
        ("[" * 100_000, "cannot be read"),
        ("- x\n" * 300_000, "larger than 1 MB"),
    ],
)
def test_a_mistake_is_told_with_its_entry_its_line_and_what_is_right(text: str, said: str) -> None:
    with pytest.raises(KeptCasesError) as refused:
        read_text(text, Path("mine.yaml"), projects=["attic", "sales"])
    assert said in str(refused.value)
    assert "unicode string" not in str(refused.value)


def test_all_mistakes_of_a_file_are_told_at_once_up_to_ten() -> None:
    wrong = (
        "- {query: x, expected: a:b}",
        "- {query: '', worst_rank: 0, zzz: 1}",
        "# a comment",
        "- {query: x, expected: ab}",
    )
    with pytest.raises(KeptCasesError) as refused:
        read_text("\n".join(wrong), Path("mine.yaml"))
    assert refused.value.lines == (
        "mine.yaml: entry 2, line 2: there is no key `zzz`; the keys are `query`, `context`, `project`, `expected`, "
        "`worst_rank`.",
        "mine.yaml: entry 2, line 2: `expected` is missing.",
        "mine.yaml: entry 2, line 2: `worst_rank` must be a whole number from 1 to 100.",
        "mine.yaml: entry 2, line 2: `query` is empty. Write what a model would ask for.",
        "mine.yaml: entry 3, line 4: `ab` is no tool key: write `server:tool`, as `pointsman tools list` does.",
        "An entry is, for example:",
        f"  {EXAMPLE}",
    )
    for count, more in ((10, None), (11, "And 1 more mistake."), (300, "And 290 more mistakes.")):
        with pytest.raises(KeptCasesError) as refused:
            read_text("- {query: x}\n" * count, Path("mine.yaml"))
        told = refused.value.lines[:-2]
        assert told[9] == "mine.yaml: entry 10, line 10: `expected` is missing."
        assert list(told[10:]) == ([more] if more else [])


@pytest.mark.parametrize("text", ["[]", "# later\n"])
def test_a_file_without_entries_is_empty(text: str) -> None:
    assert read_text(text, Path("mine.yaml")) == []


@pytest.mark.parametrize(
    "text",
    [
        "[{query: a, expected: b:c}]\n",
        "cases: []\n",
        "- {query: a, expected: b:c}\n...\n---\n",
        "x" * MAX_BYTES,
        "- {query",
    ],
)
def test_another_form_stays_as_it_is(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kept.yaml"
    path.write_text(text)
    with pytest.raises(KeptCasesError):
        keep(path, Case(["a"], ["b:c"], 1))
    assert path.read_text() == text


def test_a_request_is_kept_once(tmp_path: Path) -> None:
    path = tmp_path / "kept.yaml"
    keep(path, Case(["a"], ["b:c"], 1))
    with pytest.raises(KeptCasesError, match="entry 1"):
        keep(path, Case(["a"], ["b:c"], 1))
    assert len(read_kept(path)) == 1


def test_two_who_add_at_once_both_succeed(tmp_path: Path) -> None:
    path = tmp_path / "kept.yaml"
    threads = [threading.Thread(target=keep, args=(path, Case([f"q{n}"], ["a:b"], 1))) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(case.queries[0] for case in read_kept(path)) == sorted(f"q{n}" for n in range(8))
