"""Which paths the guard reads and which it denies: every attack targets an existing file."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path

import pytest

from pointsman.archive.code.guard import (
    MAX_BYTES,
    AccessDeniedError,
    IsFolderError,
    PathNotFoundError,
    list_names,
    read,
    resolve,
)
from tests.archive.code.trees import named, write

SECRETS = (
    ".env",
    ".ENV",
    ".Env.Local",
    ".env.production",
    ".env~",
    ".env.bak",
    "prod.env",
    "config/.env",
    "config/.envrc",
    ".env.d/settings.txt",
    ".git/config",
    ".GIT/config2",
    "vendor/.git",
    "node_modules/left-pad/index.js",
    "packages/a/node_modules/b/index.js",
    "Node_Modules/c/index.js",
    "id_rsa",
    "keys/id_rsa.bak",
    "keys/id_ed25519",
    "keys/.id_rsa.swp",
    "keys/id_ecdsa_prod",
    "server.pem",
    "server.key",
    "SERVER.KEY.old",
    "cert.p12",
    "passwords.kdbx",
    ".npmrc",
    ".netrc",
    ".pypirc",
    "credentials.json",
    "credentials.json~",
    "credentials (1).json",
    "config/service-account.json",
    "config/service_account_prod.json",
    "client_secret_123.json",
    "kubeconfig",
    "private_key",
    "keys/app-private-key.txt",
    "privkey1",
    "ssh_host_rsa_key",
    "proj-firebase-adminsdk-x1.json",
    "gha-creds-0a1b.json",
    "prod.tfvars",
    "tls/server.key.txt",
    ".secrets",
    ".bash_history",
    "kubeconfig.yaml",
    ".aws/credentials",
    ".ssh/config",
    ".ssh.bak/config",
    ".kube/config",
    ".docker/config.json",
    ".git-credentials",
    "terraform.tfstate.backup",
    "#.env#",
    ".#id_rsa",
)
GOOD = (
    "README.md",
    "src/a.ts",
    ".gitignore",
    ".gitattributes",
    ".github/workflows/ci.yml",
    ".eslintrc.json",
    "keyboard.py",
    "environment.md",
    "src/environment.ts",
    "src/env.ts",
    "env/readme.txt",
    "monkey.txt",
    "keys.py",
    "src/private_key.py",
    "docs/private-keys.md",
    "variables.tf",
    "src/adminsdk.ts",
    "locales/auth.json",
    "key.txt",
    "src/credentials/index.ts",
    "src/credentials.py",
    "pkg/kubeconfig/loader.go",
    "src/service_account.py",
    "id_rsa_test.go",
    "secrets.py",
    "docs/secret_garden.md",
    "tokenizer.json",
    "with space/and (1).txt",
    "ünïcode/文.txt",
    "dist/out.js",
    "..hidden/x.txt",
    "a..b.txt",
    "...",
    "gitignore",
    "my.git.md",
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with good files, secrets and traps, beside a folder that nobody may see."""
    home = tmp_path_factory.mktemp("guard")
    write(home / "outside", named("private.txt", "deep/private.txt", "rooted/private.txt"))
    root = write(home / "root", named(*GOOD, *SECRETS))
    write(home / "root2", named("private.txt"))
    (root / "large.txt").write_bytes(b"x" * (MAX_BYTES + 1))
    (root / "largest.txt").write_bytes(b"x" * MAX_BYTES)
    (root / "empty.txt").touch()
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.getcwd()
        os.chdir(root)  # the name of a socket must be short
        try:
            listener.bind("socket")
        finally:
            os.chdir(here)
    for link, target in LINKS.items():
        (root / link).parent.mkdir(parents=True, exist_ok=True)
        (root / link).symlink_to(target.format(home=home))
    return home


LINKS = {
    "out.txt": "../outside/private.txt",
    "out-absolute.txt": "{home}/outside/private.txt",
    "out-missing.txt": "{home}/outside/no-such-file",
    "out-folder": "../outside",
    "out-folder-absolute": "{home}/outside",
    "src/up/out": "../../../outside/deep",
    "chain1": "chain2",
    "chain2": "chain3",
    "chain3": "../outside/private.txt",
    "round1": "round2",
    "round2": "round1",
    "to-env.txt": ".env",
    "to-git": ".git",
    "to-key.txt": "keys/id_ed25519",
    "to-null": "/dev/null",
    "to-proc": "/proc/self/environ",
    "to-pipe": "pipe",
    "root-prefix": "{home}/root2/private.txt",
    "up-and-back": "../root/src/a.ts",
    "in.txt": "src/a.ts",
    "in-absolute.txt": "{home}/root/src/a.ts",
    "in-folder": "src",
    "src/credentials/up.ts": "../../keyboard.py",
    "in-chain": "in-folder/../in.txt",
}

ATTACKS = (
    *SECRETS,
    # by form
    "/etc/passwd",
    "//etc/passwd",
    "{home}/root/src/a.ts",
    "../outside/private.txt",
    "../outside/no-such-file",
    "../root/src/a.ts",
    "..",
    "../",
    "src/../../outside/private.txt",
    "src/../../root2/private.txt",
    "./../outside/private.txt",
    "src/./.././../outside/private.txt",
    "nothing/../../outside/private.txt",
    "..\\outside\\private.txt",
    "src\\..\\..\\outside\\private.txt",
    "C:/Windows/win.ini",
    "c:private.txt",
    "src/a.ts\0.png",
    "\0",
    "../root2/private.txt",
    # by spelling
    ".env.",
    ".env ",
    " .env",
    ".env...",
    ".env\u200b",
    ".e\u200dnv",
    "\uff0eenv",
    ".\uff45\uff4e\uff56",
    ".ENV::$DATA",
    "config\uff0f.env",
    ".g\u200cit/config",
    "GIT~1/config",
    "src/../.env",
    "./.env",
    "config//.env",
    ".git/../src/a.ts",
    "node_modules/../src/a.ts",
    ".env/../src/a.ts",
    # by links
    "out.txt",
    "out-absolute.txt",
    "out-missing.txt",
    "out-folder/private.txt",
    "out-folder/no-such-file",
    "out-folder-absolute/deep/private.txt",
    "src/up/out/private.txt",
    "chain1",
    "round1",
    "to-env.txt",
    "to-git/config",
    "to-key.txt",
    "root-prefix",
    "up-and-back",
    "to-proc",
    # by kind
    "pipe",
    "to-pipe",
    "socket",
    "to-null",
    "large.txt",
)
LEADS_TO = {
    "src/../src/a.ts": "src/a.ts",
    "./README.md": "README.md",
    "src//a.ts": "src/a.ts",
    "src/./a.ts": "src/a.ts",
    "in.txt": "src/a.ts",
    "in-absolute.txt": "src/a.ts",
    "in-folder/a.ts": "src/a.ts",
    "in-folder/../README.md": "README.md",
    "in-chain": "src/a.ts",
    "src/credentials/up.ts": "keyboard.py",
    **{path: path for path in GOOD},
}
NOT_THERE = (
    "no-such-file",
    "src/no-such-file",
    "src/a.ts/b",
    "src/a.ts/.",
    "src/a.ts/",
    "nothing/../src/a.ts",
    "SRC/no.ts",
    "x" * 300,
    "x/" * 3000,
    "%2e%2e/outside/private.txt",
    "file:/x",
    "~/notes.txt",
    ".. /outside/private.txt",
    "‥/outside/private.txt",
    "\ud800.txt",
)


@pytest.mark.parametrize("attack", ATTACKS, ids=ascii)
def test_an_attack_is_refused(home: Path, attack: str) -> None:
    with pytest.raises(AccessDeniedError):
        read(home / "root", attack.format(home=home))


def test_there_are_more_attacks_than_the_known_35() -> None:
    assert len(ATTACKS) >= 35
    assert len(LEADS_TO) >= 10


@pytest.mark.parametrize("path", LEADS_TO, ids=ascii)
def test_a_good_path_is_read_and_told_without_links(home: Path, path: str) -> None:
    file = read(home / "root", path)
    assert file.path == LEADS_TO[path]
    assert file.content.decode() == f"content of {file.path}\n"
    assert resolve(home / "root", path) == file.path


@pytest.mark.parametrize("path", NOT_THERE, ids=lambda path: ascii(path[:40]))
def test_what_is_not_there_is_missing(home: Path, path: str) -> None:
    with pytest.raises(PathNotFoundError):
        read(home / "root", path)


@pytest.mark.parametrize("path", ["src", ".", "./", "src/", "in-folder", ".github/workflows"])
def test_a_folder_is_told_apart_from_what_is_missing(home: Path, path: str) -> None:
    with pytest.raises(IsFolderError):
        read(home / "root", path)


@pytest.mark.parametrize(
    ("there", "missing"),
    [
        ("../outside/private.txt", "../outside/no-such-file"),
        ("/etc/passwd", "/etc/no-such-file"),
        ("out-absolute.txt", "out-missing.txt"),
        ("out-folder/private.txt", "out-folder/no-such-file"),
        ("out-folder/deep/private.txt", "out-folder/no-such-folder/private.txt"),
        (".env", "src/.env"),
        (".git/config", ".git/no-such-file"),
        ("to-git/config", "to-git/no-such-file"),
        ("id_rsa", "src/id_rsa"),
    ],
)
def test_refusals_do_not_tell_what_exists(home: Path, there: str, missing: str) -> None:
    said = []
    for path in (there, missing):
        with pytest.raises(AccessDeniedError) as refused:
            read(home / "root", path)
        said.append(str(refused.value))
    assert said[0] == said[1]


def test_the_size_limit_is_exact(home: Path) -> None:
    assert len(read(home / "root", "largest.txt").content) == MAX_BYTES
    assert read(home / "root", "empty.txt").content == b""
    with pytest.raises(AccessDeniedError, match="larger than 1 MB"):
        read(home / "root", "large.txt")


def test_a_file_without_a_size_gives_away_nothing() -> None:
    """Such as the environment of a process, for an operator who makes all of the machine a root."""
    assert Path(f"/proc/{os.getpid()}/environ").read_bytes()
    assert read(Path("/proc"), f"{os.getpid()}/environ").content == b""


def test_a_link_to_a_name_that_is_no_text_leads_nowhere(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.txt")).write_text("content")
    (tmp_path / "link.txt").symlink_to(os.fsdecode(b"\xff.txt"))
    with pytest.raises(PathNotFoundError):
        read(tmp_path, "link.txt")
    with pytest.raises(PathNotFoundError):
        read(tmp_path, os.fsdecode(b"\xff.txt"))


def test_a_root_may_be_a_link_itself(home: Path, tmp_path: Path) -> None:
    (tmp_path / "app").symlink_to(home / "root")
    assert read(tmp_path / "app", "in-absolute.txt").path == "src/a.ts"
    with pytest.raises(AccessDeniedError):
        read(tmp_path / "app", "out.txt")


def test_the_names_in_a_folder_leave_out_what_is_blocked(home: Path) -> None:
    assert "index.ts" in list_names(home / "root", "src/credentials")
    listed = list_names(home / "root", "")
    assert "README.md" in listed
    assert not {".env", ".git", "node_modules", "id_rsa", ".ssh"} & set(listed)
    with pytest.raises(AccessDeniedError):
        list_names(home / "root", "out-folder")


def test_no_handle_is_left_open(home: Path) -> None:
    before = len(os.listdir("/dev/fd"))
    for path in (*ATTACKS, *LEADS_TO, *NOT_THERE):
        with suppress(AccessDeniedError, PathNotFoundError):
            read(home / "root", path.format(home=home))
    assert len(os.listdir("/dev/fd")) <= before
