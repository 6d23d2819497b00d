"""What grep finds and shows, and what it never does."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from pointsman.archive.code import grep as grep_module
from pointsman.archive.code import ripgrep
from pointsman.archive.code.globs import Glob
from pointsman.archive.code.grep import WIDTH, GrepResult, PatternError, grep
from pointsman.archive.code.ripgrep import COUNT_TO
from pointsman.archive.code.roots import NoRootsError, RootGoneError
from tests.archive.code.test_guard import SECRETS
from tests.archive.code.trees import write

TREE = {
    "src/a.ts": "one\ntwo\nconst needle = 1\nfour\nfive\nsix\n",
    "src/b.ts": "Needle needle\nneedle",
    "docs/guide.md": "a needle in the docs\n",
    "node_modules/x/i.ts": "needle\n",
    "dist/out.js": "needle\n",
    "packages/a/build/out.js": "needle\n",
    "packages/a/node_modules/y/i.ts": "needle\n",
    ".next/x.js": "needle\n",
    ".context/x.md": "needle\n",
    ".git/config": "needle\n",
    ".github/workflows/ci.yml": "needle: true\n",
    ".hidden.ts": "needle\n",
    ".gitignore": "ignored.ts\nskipped/\n",
    "ignored.ts": "needle\n",
    "skipped/x.ts": "needle\n",
    "crlf.txt": "needle\r\nnext\r\n",
    "new\nline.txt": "needle\n",
    "builder/ok.ts": "needle\n",
}
VISIBLE = ["builder/ok.ts", "crlf.txt", "docs/guide.md", "new\nline.txt", "src/a.ts", "src/b.ts", "src/b.ts"]


def search(
    root: Path, pattern: str = "needle", glob: str | None = None, *, case: bool = False, limit: int = 50
) -> GrepResult:
    return grep({"app": root}, pattern, Glob(glob) if glob else None, case, limit)


def files(found: GrepResult) -> list[str]:
    return [match.file for match in found.matches]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("grep")
    write(home / "outside", {"private.ts": "needle\n"})
    write(home, {".gitignore": "*.ts\n"})  # outside the root: has no say
    root = write(home / "root", {**TREE, **dict.fromkeys(SECRETS, "needle\n")})
    (root / "link.ts").symlink_to(home / "outside/private.ts")
    (root / "link-folder").symlink_to(home / "outside")
    (root / "link-env.txt").symlink_to(".env")
    os.mkfifo(root / "pipe")
    return root


def test_matches_come_in_order_with_two_lines_round_them(tree: Path) -> None:
    found = search(tree)
    assert files(found) == VISIBLE
    assert (found.total, found.total_capped) == (len(VISIBLE), False)
    match = next(match for match in found.matches if match.file == "src/a.ts")
    assert (match.line, match.column, match.text) == (3, 7, "const needle = 1")
    assert (match.before, match.after) == (("one", "two"), ("four", "five"))


def test_context_ends_where_the_file_does(tree: Path) -> None:
    first, second = search(tree, glob="src/b.ts").matches
    assert (first.before, first.after) == ((), ("needle",))
    assert (second.before, second.after) == (("Needle needle",), ())


def test_files_searched_is_the_number_of_files_in_question(tree: Path) -> None:
    assert search(tree).files == len(set(VISIBLE))
    assert search(tree, "no such text").files == len(set(VISIBLE))
    assert search(tree, glob="src/**").files == 2


def test_case_counts_only_when_asked(tree: Path) -> None:
    assert len(search(tree, "NEEDLE", glob="src/b.ts").matches) == 2
    assert [match.line for match in search(tree, "Needle", glob="src/b.ts", case=True).matches] == [1]


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("**/*.ts", ["builder/ok.ts", "src/a.ts", "src/b.ts", "src/b.ts"]),
        ("*.md", ["docs/guide.md"]),
        ("app/docs/**", ["docs/guide.md"]),
        ("*", VISIBLE),
        ("**", VISIBLE),
        ("{src,docs}/*", ["docs/guide.md", "src/a.ts", "src/b.ts", "src/b.ts"]),
        ("[s]rc/[a].ts", ["src/a.ts"]),
        (".github/**", [".github/workflows/ci.yml"]),
        ("**/.hidden.ts", [".hidden.ts"]),
        ("ignored.ts", []),
        ("skipped/**", []),
        ("node_modules/**", []),
        ("**/node_modules/**/*.ts", []),
        ("dist/*.js", []),
        ("**/build/**", []),
        (".git/**", []),
        (".git/config", []),
        (".env*", []),
        ("**/.env", []),
        ("*.pem", []),
        ("**/id_rsa", []),
        ("link.ts", []),
        ("link-folder/*.ts", []),
    ],
)
def test_a_file_pattern_narrows_and_brings_back_nothing(tree: Path, glob: str, expected: list[str]) -> None:
    assert files(search(tree, glob=glob)) == expected


def test_no_file_pattern_reaches_a_secret(tree: Path) -> None:
    shown = {
        file
        for glob in ("**", ".*", "**/.*", ".*/**", "**/.*/**")
        for file in files(search(tree, glob=glob, limit=100))
    }
    assert ".github/workflows/ci.yml" in shown
    assert not shown & set(SECRETS)


def test_the_limit_bounds_what_is_shown_and_not_what_is_counted(tree: Path) -> None:
    found = search(tree, limit=2)
    assert files(found) == VISIBLE[:2]
    assert (found.total, found.total_capped) == (len(VISIBLE), False)


def test_counting_stops_at_ten_thousand_and_says_so(tmp_path: Path) -> None:
    write(tmp_path, {f"{number}.txt": "needle\n" * 4_000 for number in range(4)})
    found = search(tmp_path, limit=3)
    assert (found.total, found.total_capped, len(found.matches)) == (COUNT_TO, True, 3)


def test_a_single_file_can_have_too_many(tmp_path: Path) -> None:
    write(tmp_path, {"all.txt": "needle\n" * (COUNT_TO + 500)})
    found = search(tmp_path, limit=100)
    assert (found.total, found.total_capped, len(found.matches)) == (COUNT_TO, True, 100)


def test_exactly_ten_thousand_are_all(tmp_path: Path) -> None:
    write(tmp_path, {f"{number}.txt": "needle\n" * 5_000 for number in range(2)})
    found = search(tmp_path, limit=1)
    assert (found.total, found.total_capped) == (COUNT_TO, False)


def test_counting_stops_when_its_time_is_over_and_enough_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grep_module, "COUNT_S", 0.0)
    write(tmp_path, {f"{number:0200}.txt": "needle\n" for number in range(400)})  # more than is read in one piece
    found = search(tmp_path, limit=3)
    assert found.total_capped
    assert 3 <= found.total < 400
    assert len(found.matches) == 3


def test_matches_that_there_was_no_time_to_show_are_counted_all_the_same(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grep_module._Locator, "deadline", lambda _: 0.0)
    found = search(tree)
    assert (found.matches, found.total, found.total_capped) == ((), len(VISIBLE), True)


def test_a_search_ends_when_its_time_is_over(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grep_module, "HARD_S", 0.0)
    found = search(tree)
    assert (found.matches, found.total_capped, found.files) == ((), True, 0)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("[invalid(", "unclosed character class"),
        ("(", "unclosed group"),
        ("*", "repetition operator missing expression"),
        ("a\\nb", "not allowed in a regex"),
        ("a\nb", "not allowed in a regex"),
        (r"a\r", "not allowed in a regex"),
        ("a\0b", "zero byte"),
        (r"(\w{100}){200}", "size limit"),
        (r"(?P<a>x)\1", "backreferences are not supported"),
        ("(?=x)", "look-around"),
    ],
)
def test_a_bad_pattern_is_refused_with_ripgreps_reason(tree: Path, pattern: str, reason: str) -> None:
    with pytest.raises(PatternError, match=reason) as refused:
        search(tree, pattern)
    assert str(tree) not in str(refused.value)


@pytest.mark.parametrize("pattern", ["--files", "-e", "--pre=touch x", "-", "--", ". /etc/passwd"])
def test_a_pattern_is_never_an_option(tree: Path, pattern: str) -> None:
    assert search(tree, pattern.replace(".", "[.]")).matches == ()


@pytest.mark.parametrize("text", ["needle" * 150_000, "x" * 900_000 + " needle", "n" * 1_000_000 + "eedle needle"])
def test_a_line_of_a_megabyte_is_cut_round_the_match(tmp_path: Path, text: str) -> None:
    write(tmp_path, {"long.txt": text})
    found = search(tmp_path)
    assert found.total == 1
    assert "needle" in found.matches[0].text
    assert len(found.matches[0].text) <= WIDTH + 2
    assert found.matches[0].column == text.index("needle") + 1


def test_every_byte_of_a_long_line_may_match(tmp_path: Path) -> None:
    write(tmp_path, {"long.txt": "a" * 1_000_000})
    assert [len(match.text) for match in search(tmp_path, "a").matches] == [WIDTH + 1]


def test_text_that_is_not_utf8_is_shown_as_well_as_can_be(tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9 needle\n\xff\xfe\n")
    (tmp_path / "marked.txt").write_bytes(b"\xef\xbb\xbfneedle with a mark\n")
    (tmp_path / "wide.txt").write_bytes("first\nä needle\n".encode("utf-16"))
    (tmp_path / "binary.dat").write_bytes(b"needle\n" + b"\0" * 50 + b"needle\n")
    os.mkdir(os.fsencode(tmp_path) + b"/\xff")
    (tmp_path / os.fsdecode(b"\xff") / "x.txt").write_text("needle\n")
    found = search(tmp_path)
    shown = [(match.file, match.line, match.column, match.text) for match in found.matches]
    assert shown == [
        ("latin.txt", 1, 6, "caf\ufffd needle"),
        ("marked.txt", 1, 1, "needle with a mark"),
        ("wide.txt", 2, 3, "ä needle"),
    ]
    assert found.total == 3


def test_files_over_a_megabyte_are_not_searched(tmp_path: Path) -> None:
    write(tmp_path, {"large.txt": "needle\n" * 200_000, "small.txt": "needle\n"})
    found = search(tmp_path)
    assert (files(found), found.files) == (["small.txt"], 1)


def test_several_roots_are_searched_and_named(tree: Path, tmp_path: Path) -> None:
    write(tmp_path, {"x.ts": "needle\n", "src/a.ts": "needle\n"})
    roots = {"web": tmp_path, "app": tree}
    everything = grep(roots, "needle", None, False, 100)
    assert files(everything) == [*(f"app/{path}" for path in VISIBLE), "web/src/a.ts", "web/x.ts"]
    assert everything.files == len(set(VISIBLE)) + 2
    assert files(grep(roots, "needle", Glob("web/**"), False, 100)) == ["web/src/a.ts", "web/x.ts"]
    assert files(grep(roots, "needle", Glob("src/a.ts"), False, 100)) == ["app/src/a.ts", "web/src/a.ts"]
    assert files(grep(roots, "needle", None, False, 8)) == [*(f"app/{path}" for path in VISIBLE), "web/src/a.ts"]


def test_roots_that_are_not_there_are_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(NoRootsError):
        grep({}, "x", None, False, 1)
    with pytest.raises(RootGoneError, match=r"^app$"):
        search(tmp_path / "gone")


def test_users_own_settings_have_no_say(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rc").write_text("--follow\n--hidden\n--no-ignore\n")
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(tmp_path / "rc"))
    assert files(search(tree)) == VISIBLE


def test_ours_is_the_ripgrep_that_runs(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rg").write_text("#!/bin/sh\nexit 0\n")
    (tmp_path / "rg").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert files(search(tree)) == VISIBLE


class Never:
    """Wants a child's output and gives it no time."""

    def feed(self, data: bytes) -> bool:
        raise AssertionError("there is nothing to read")

    def deadline(self) -> float:
        return 0.0


def test_a_child_past_its_deadline_is_killed_and_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    start = ripgrep._start

    def watched(folder: Path, command: list[str]) -> subprocess.Popen[bytes]:
        started.append(start(folder, command))
        return started[-1]

    monkeypatch.setattr(ripgrep, "_start", watched)
    assert ripgrep.run(tmp_path, ["sleep", "600"], Never()) is None
    assert [child.returncode for child in started] == [-9]
