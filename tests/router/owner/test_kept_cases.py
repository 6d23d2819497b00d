"""The file of kept requests: added to at its end, and never rewritten otherwise."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman.router.owner.kept_cases import MAX_BYTES, Case, KeptCasesError, keep, read_kept, read_text

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
CASES = st.builds(
    Case,
    st.lists(TEXTS, min_size=1, max_size=3),
    st.lists(TEXTS, min_size=1, max_size=2),
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
    "text",
    [
        "[{query: a, expected: b}]\n",
        "cases: []\n",
        "- {query: a, expected: b}\n...\n---\n",
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
