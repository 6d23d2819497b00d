"""What a start costs: heavy parts are loaded at first use."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("mcp", "mcp.server", "mcp.client", "aiohttp", "numpy", "prometheus_client", "rank_bm25", "httpx2")


def test_the_daemon_starts_without_what_it_may_never_need() -> None:
    code = f"import pointsman.router.cli.serve, sys; print([name for name in {HEAVY!r} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_the_header_ladder_is_the_one_of_the_sdk() -> None:
    from mcp.shared import inbound
    from mcp_types.methods import INPUT_REQUIRED_METHODS

    from pointsman.core import sdk

    assert inbound.ERROR_CODE_HTTP_STATUS == sdk.ERROR_CODE_HTTP_STATUS
    assert INPUT_REQUIRED_METHODS == sdk.INPUT_REQUIRED_METHODS
    assert inbound.classify_inbound_request.__code__ == sdk.classify_inbound_request.__code__
