"""For any path and any links, the guard returns only regular files of the root that are not secret."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman.archive.code.guard import AccessDeniedError, PathNotFoundError, read
from tests.archive.code.trees import named, write

ALLOWED = ("README.md", "src/a.ts", "src/deep/b.py", ".github/ci.yml", "keyboard.py", "src/credentials/c.go")
FORBIDDEN = (".env", "src/.env.local", ".git/config", "node_modules/x/i.js", "keys/id_rsa", "keys/server.pem")
LINKS = ("l0", "l1", "src/l2", "src/deep/l3", "keys/l4")

NAMES = [
    *{part for path in (*ALLOWED, *FORBIDDEN, *LINKS) for part in path.split("/")},
    "outside",
    "root",
    "private.txt",
]
PARTS = st.one_of(
    st.sampled_from(NAMES),
    st.sampled_from(NAMES).map(str.upper),
    st.sampled_from(["..", "..", ".", "", "...", "~", ".env.", ".env ", "\uff0eenv", ".e\u200bnv", "\\..", "\0", "C:"]),
    st.text(max_size=4),
)
RELATIVE = st.lists(PARTS, max_size=7).map("/".join)
ASKED = st.one_of(
    RELATIVE, RELATIVE.map("/".__add__), st.sampled_from((*ALLOWED, *FORBIDDEN, *LINKS)), st.text(max_size=30)
)
TARGETS = st.one_of(
    st.lists(st.sampled_from([*NAMES, "..", ".."]), min_size=1, max_size=5).map("/".join),
    RELATIVE.map(lambda path: "{home}/root/" + path),
    RELATIVE.map(lambda path: "{home}/outside/" + path),
    st.sampled_from(["/", "/dev/null", "/proc/self/environ", "{home}", "{home}/root", "{home}/root2", "."]),
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("properties")
    write(home / "root", named(*ALLOWED, *FORBIDDEN))
    write(home / "outside", named("private.txt", "src/a.ts", "root/README.md"))
    write(home / "root2", named("private.txt", "README.md"))
    return home


def inodes(home: Path) -> dict[tuple[int, int], str]:
    """The files that may come back, by what the system knows them by."""
    found = {}
    for path in ALLOWED:
        status = os.lstat(home / "root" / path)
        assert stat.S_ISREG(status.st_mode)
        found[status.st_dev, status.st_ino] = path
    return found


@settings(max_examples=400, deadline=None, database=None)
@given(asked=ASKED, links=st.dictionaries(st.sampled_from(LINKS), TARGETS, max_size=len(LINKS)))
def test_only_regular_files_of_the_root_come_back(home: Path, asked: str, links: dict[str, str]) -> None:
    root = home / "root"
    lay(root, {link: target.replace("{home}", str(home)) for link, target in links.items()})
    try:
        file = read(root, asked)
    except (AccessDeniedError, PathNotFoundError):
        return
    real = os.stat(root / asked)  # follows all links, as the system does
    path = inodes(home)[real.st_dev, real.st_ino]
    assert file.path == path
    assert file.content.decode() == f"content of {path}\n"


@settings(max_examples=100, deadline=None, database=None)
@given(
    path=st.sampled_from(ALLOWED),
    links=st.dictionaries(st.sampled_from(LINKS), TARGETS, max_size=len(LINKS)),
    detours=st.lists(st.sampled_from([".", "", "src/..", "src/deep/../.."]), max_size=3),
)
def test_a_plain_path_is_read_whatever_links_lie_beside_it(
    home: Path, path: str, links: dict[str, str], detours: list[str]
) -> None:
    root = home / "root"
    lay(root, {link: target.replace("{home}", str(home)) for link, target in links.items()})
    asked = "/".join([*detours, path]).lstrip("/")
    assert read(root, asked).path == path


def lay(root: Path, links: dict[str, str]) -> None:
    for link in LINKS:
        (root / link).unlink(missing_ok=True)
    for link, target in links.items():
        if target and "\0" not in target and encodable(target):
            (root / link).symlink_to(target)


def encodable(text: str) -> bool:
    return not any(0xD800 <= ord(sign) < 0xE000 for sign in text)
