"""Fixtures for all tests."""

import gc
import signal
import sqlite3
import sys
from contextlib import suppress
from functools import partial

import pytest
from hypothesis import settings

from tests import fork_server

pytest_plugins = ["tests.postgres"]

# No timing is asserted: on a busy machine the first example, which loads tables, would fail now and then.
settings.register_profile("pointsman", deadline=None)
settings.load_profile("pointsman")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell lets what it starts in the background ignore SIGINT, and children inherit that, so that none of them
    # could be interrupted. A handler that does nothing is not inherited: they begin with the usual one.
    signal.signal(signal.SIGINT, lambda *_: None)

fork_server.install()


class ClosingConnection(sqlite3.Connection):
    """Closes itself when it is collected."""

    def __del__(self) -> None:
        with suppress(sqlite3.Error):  # it belongs to another thread
            self.close()


if sys.version_info >= (3, 13):
    # Since 3.13 Python warns of a connection that is collected open. Tests drop many, with the store that opened them.
    sqlite3.connect = partial(sqlite3.connect, factory=ClosingConnection)


def pytest_collection_finish() -> None:
    """Exempt what collection has made from garbage collection: thousands of tests, which stay to the end.

    A full collection would take 0.3 s of CPU time, in the middle of whatever a test measures.
    """
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before the fixtures of any scope, which may start gateways."""
    fork_server.enabled = item.get_closest_marker("new_interpreter") is None


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """A test has a loop of its own; one that uses an async fixture of a module shares that fixture's loop."""
    return "asyncio"
