"""References to keyrings, with real backends: which keyring is used, and what an error says."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from pointsman.config import keyring_program, secret_reader
from pointsman.config.errors import ConfigError
from pointsman.config.loader import load
from pointsman.router.cli.common.secret_environment import keyring_environment
from pointsman.router.cli.common.secret_environment import secret_reader as reader_of
from tests.config.secret_file import SECRET, File, header_of, problem_in


@pytest.fixture
def file(tmp_path: Path) -> File:
    return File(tmp_path)


BACKENDS = """
import time
from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked

class Locked(KeyringBackend):
    priority = 1
    def set_password(self, service, username, password):
        raise KeyringLocked("leaked-out")
    def get_password(self, service, username):
        raise KeyringLocked("leaked-out")

class Waiting(Locked):
    def get_password(self, service, username):
        open(__file__ + ".asked", "w").close()
        time.sleep(600)

class Broken(Locked):
    def get_password(self, service, username):
        print("leaked-out")
        open(__file__ + ".asked", "w").close()
        raise RuntimeError("leaked-out")
"""


def _environment(folder: Path, backend: str) -> dict[str, str]:
    """Of a user whose keyring is `backend`, and is kept in `folder`."""
    settings = folder / "config" / "python_keyring"
    settings.mkdir(parents=True)
    (settings / "keyringrc.cfg").write_text(f"[backend]\nkeyring-path={folder}\ndefault-keyring={backend}\n")
    (folder / "own_backends.py").write_text(BACKENDS)
    own = {"XDG_CONFIG_HOME": str(folder / "config"), "XDG_DATA_HOME": str(folder / "data")}
    by_name = {} if backend.startswith("own_") else {"PYTHON_KEYRING_BACKEND": backend}
    return {**os.environ, **own, **by_name}


def _store(environ: Mapping[str, str], service: str, name: str, secret: str) -> int:
    argv = secret_reader.keyring_argv("set", service, name)
    return secret_reader.run_bounded(argv, keyring_environment(environ), Path("/"), 60, stdin=secret.encode()).code


def test_a_secret_comes_from_the_keyring_of_the_user(file: File) -> None:
    environ = _environment(file.folder, "keyrings.alt.file.PlaintextKeyring")
    assert _store(environ, "pointsman", "tracker", SECRET) == 0
    assert _store(environ, "https://api.example/v1", "ann", "anns-own\n") == 0
    file.reader = reader_of(environ)
    file.write("Bearer ${keyring:tracker} ${keyring:https://api.example/v1/ann}")
    assert header_of(file.load()) == f"Bearer {SECRET} anns-own"


def test_a_keyring_that_stores_plain_text_is_used_only_if_it_is_named(file: File) -> None:
    environ = _environment(file.folder, "keyrings.alt.file.PlaintextKeyring")
    environ.pop("PYTHON_KEYRING_BACKEND")
    (file.folder / "config" / "python_keyring" / "keyringrc.cfg").unlink()
    environ["DBUS_SESSION_BUS_ADDRESS"] = "unix:path=/nowhere"  # no other keyring of whoever runs the test
    assert _store(environ, "pointsman", "tracker", SECRET) == keyring_program.NO_BACKEND
    assert not (file.folder / "data").exists()


@pytest.mark.parametrize(
    ("backend", "reason"),
    [
        ("keyring.backends.null.Keyring", "does not exist; `pointsman secret set tracker` stores it"),
        ("keyring.backends.fail.Keyring", "no keyring that works here"),
        ("own_backends.Locked", "is locked; unlock it"),
        ("own_backends.Broken", "the keyring failed"),
    ],
)
def test_a_keyring_without_the_secret_says_why(file: File, backend: str, reason: str) -> None:
    file.reader = reader_of(_environment(file.folder, backend))
    file.write("${keyring:tracker}")
    told = problem_in(file)
    assert reason in told
    assert "leaked" not in told


def test_a_keyring_that_waits_for_a_person_is_not_waited_for(file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret_reader, "MAX_S", 3.0)
    file.reader = reader_of(_environment(file.folder, "own_backends.Waiting"))
    file.write("${keyring:tracker}")
    assert "unlock it first" in problem_in(file)
    assert (file.folder / "own_backends.py.asked").exists()


@pytest.mark.parametrize("text", ["", "/", "service/", "/name"])
def test_a_keyring_entry_has_a_name(file: File, text: str) -> None:
    file.write(f"${{keyring:{text}}}")
    assert "takes NAME or SERVICE/NAME" in problem_in(file)


def test_a_missing_package_is_said_before_anything_is_asked(file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    file.write("${keyring:tracker}")
    with pytest.raises(ConfigError, match=r"pointsman\[keyring\]"):
        load(file.path, os.environ)
