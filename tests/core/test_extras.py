"""The command that adds an extra fits the environment that runs."""

from __future__ import annotations

import shlex
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from pointsman.core.extras import install_command


def test_the_own_pip_is_used_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    pip = ModuleType("pip")
    pip.__spec__ = ModuleSpec("pip", None)
    monkeypatch.setitem(sys.modules, "pip", pip)
    assert shlex.split(install_command("pdf")) == [sys.executable, "-m", "pip", "install", "pointsman[pdf]"]


def test_an_environment_that_uv_made_without_pip_gets_the_command_of_uv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pip", None)  # as Python marks what cannot be imported
    monkeypatch.setattr(sys, "executable", "/home/anna b/.venv/bin/python")
    assert shlex.split(install_command("pdf")) == [
        *("uv", "pip", "install", "--python", "/home/anna b/.venv/bin/python", "pointsman[pdf]")
    ]
