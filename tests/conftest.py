"""Fixtures for all tests."""

import signal

import pytest

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell lets what it starts in the background ignore SIGINT, and children inherit that, so that none of them
    # could be interrupted. A handler that does nothing is not inherited: they begin with the usual one.
    signal.signal(signal.SIGINT, lambda *_: None)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
