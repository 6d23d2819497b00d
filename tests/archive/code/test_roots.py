"""The root that a path means."""

from __future__ import annotations

from pathlib import Path

import pytest

from pointsman.archive.code import guard
from pointsman.archive.code.guard import AccessDeniedError, IsFolderError, PathNotFoundError
from pointsman.archive.code.roots import NoRootsError, Root, RootGoneError, UnknownRootError, in_root
from tests.archive.code.trees import named, write


@pytest.fixture
def home(tmp_path: Path) -> Path:
    write(tmp_path / "app", named("src/a.ts", "x.ts", ".env", "app/inner.ts"))
    write(tmp_path / "web", named("src/a.ts", "index.html"))
    return tmp_path


def shown(roots: dict[str, Path], path: str) -> str:
    def read(root: Root, inside: str) -> str:
        file = guard.read(root.folder, inside)
        assert file.content.decode() == f"content of {file.path}\n"
        return root.display_path(file.path)

    return in_root(roots, path, read)


@pytest.mark.parametrize(
    ("path", "is_"),
    [
        ("src/a.ts", "src/a.ts"),
        ("app/src/a.ts", "src/a.ts"),
        ("./app/x.ts", "x.ts"),
        ("app/inner.ts", "app/inner.ts"),
        ("app/app/inner.ts", "app/inner.ts"),
    ],
)
def test_the_name_of_the_only_root_may_be_left_out(home: Path, path: str, is_: str) -> None:
    assert shown({"app": home / "app"}, path) == is_


def test_with_several_roots_a_path_begins_with_a_name(home: Path) -> None:
    roots = {"app": home / "app", "web": home / "web"}
    assert shown(roots, "app/src/a.ts") == "app/src/a.ts"
    assert shown(roots, "./web//src/../index.html") == "web/index.html"
    for path in ("src/a.ts", "index.html", "webby/index.html", "nothing"):
        with pytest.raises(UnknownRootError):
            shown(roots, path)


@pytest.mark.parametrize(
    "path", ["app/../web/index.html", "../web/index.html", "app/../../web/x", "app/.env", "app/\0"]
)
def test_no_path_leads_from_one_root_to_another(home: Path, path: str) -> None:
    with pytest.raises(AccessDeniedError):
        shown({"app": home / "app", "web": home / "web"}, path)


def test_two_archives_with_two_roots_see_two_trees(home: Path) -> None:
    with pytest.raises(PathNotFoundError):
        shown({"app": home / "app"}, "index.html")
    assert shown({"web": home / "web"}, "index.html") == "index.html"


def test_roots_themselves_are_folders(home: Path) -> None:
    for roots in ({"app": home / "app"}, {"app": home / "app", "web": home / "web"}):
        for path in ("app", "app/"):
            with pytest.raises(IsFolderError):
                shown(roots, path)


def test_no_root_and_a_root_that_is_gone_are_told_apart(home: Path) -> None:
    with pytest.raises(NoRootsError):
        shown({}, "x")
    with pytest.raises(RootGoneError, match=r"^app$"):
        shown({"app": home / "gone"}, "x")
