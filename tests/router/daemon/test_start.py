"""What a start costs: heavy parts are loaded at first use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# What the first answer does not need. The routes beside `/mcp` need Starlette, tokens that clients keep need
# cryptography, the first call jsonschema_rs, the first discovery numpy and the tokenizer.
HEAVY = (
    "aiohttp",
    "anyio._backends._asyncio",
    "cryptography",
    "httpx2",
    "jinja2",
    "jsonschema_rs",
    "mcp",
    "mcp_types",
    "numpy",
    "opentelemetry",
    "pointsman.providers.cloud.service",
    "pointsman.router.app",
    "pointsman.router.observe.tracing",
    "prometheus_client",
    "rank_bm25",
    "snowballstemmer",
    "starlette.routing",
    "tokenizers",
)
MAX_DATACLASSES = 20  # defined at a start: each takes 0.5 ms, and a struct takes 0.01

STARTED = """
import asyncio, dataclasses, sys
from pathlib import Path

import pointsman.router.cli.run.serve
from pointsman.config.loader import load
from pointsman.router.run import serve
from pointsman.router.launch import Launch

async def main(folder):
    stop, path = asyncio.Event(), folder / "pointsman.yaml"
    config = load(path, {})
    await serve(Launch(config, path, lambda: config, folder / "state", lambda url: stop.set()), stop)

heavy, folder = sys.argv[1].split(), Path(sys.argv[2])
asyncio.run(main(folder))
own = [module for name, module in sys.modules.items() if name.startswith("pointsman.")]
defined = {one for module in own for one in vars(module).values() if isinstance(one, type)}
print([name for name in heavy if name in sys.modules])
print(sum(one.__module__.startswith("pointsman.") and dataclasses.is_dataclass(one) for one in defined))
"""


def test_the_daemon_starts_without_what_it_may_never_need(tmp_path: Path) -> None:
    (tmp_path / "pointsman.yaml").write_text("listen: {port: 0}\n")
    command = [sys.executable, "-P", "-c", STARTED, " ".join(HEAVY), str(tmp_path)]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded, dataclasses = found.stdout.splitlines()
    assert loaded == "[]"
    assert int(dataclasses) <= MAX_DATACLASSES


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
