"""What a start costs: heavy parts are loaded at first use."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("mcp", "mcp_types", "aiohttp", "numpy", "prometheus_client", "rank_bm25", "httpx2")


def test_the_daemon_starts_without_what_it_may_never_need() -> None:
    code = f"import pointsman.router.cli.run.serve, sys; print([name for name in {HEAVY!r} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_what_is_loaded_alone_is_what_the_sdk_has() -> None:
    import mcp_types
    from mcp.shared import inbound
    from mcp_types import version
    from mcp_types.methods import INPUT_REQUIRED_METHODS

    from pointsman.core import sdk

    origins = (mcp_types, version, inbound)
    constants = [name for name in sdk.__all__ if name.isupper() and name != "INPUT_REQUIRED_METHODS"]
    assert len(constants) >= 13
    for name in constants:
        assert getattr(sdk, name) == next(getattr(one, name) for one in origins if hasattr(one, name)), name
    assert INPUT_REQUIRED_METHODS == sdk.INPUT_REQUIRED_METHODS
    assert inbound.classify_inbound_request.__code__ == sdk.classify_inbound_request.__code__
    ours, theirs = (one.unsupported_protocol_version_rejection("1999-01-01") for one in (sdk, inbound))
    assert ours is not None
    assert theirs is not None
    assert (ours.code, ours.message, ours.data) == (theirs.code, theirs.message, theirs.data)


def test_a_call_over_http_does_not_load_aiohttp() -> None:
    code = "import pointsman.router.downstream.http.connect, sys; print('aiohttp' in sys.modules)"
    found = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"
