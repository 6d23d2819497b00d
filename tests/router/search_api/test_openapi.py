"""The OpenAPI document is true: schemathesis asks the running service what it describes, and what it rules out."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import pytest

from pointsman import __version__
from pointsman.router.search_api.messages import API_VERSION
from tests.router.search_api.search_client import Client

ROOT = Path(__file__).parents[3]
LEAST = 30  # requests in each mode; it makes 60 or a few less


async def test_it_names_its_version_and_all_errors_of_a_search(client: Client) -> None:
    document = (await client.get("/openapi.json")).json()
    assert document["openapi"] == "3.1.0"
    assert document["info"]["version"] == API_VERSION
    assert __version__ in document["info"]["description"]
    search = document["paths"]["/catalog/search"]["post"]
    assert set(search["responses"]) >= {"200", "400", "401", "403", "413", "415", "421", "429", "500", "503"}
    asked = document["components"]["schemas"]["SearchBody"]["properties"]
    assert asked["tools"]["maxItems"] == 20, "the limit that holds, not the one by default"
    assert asked["query"]["anyOf"][1]["maxItems"] == 5


@pytest.mark.parametrize("mode", ["positive", "negative"])
async def test_the_service_does_what_its_document_says(client: Client, mode: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-m",
            "tests.router.search_api.schema_run",
            client.service.url,
            client.service.token,
            mode,
        ),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    asked = re.search(r"^(\d+) requests$", said.decode(), re.MULTILINE)
    assert asked is not None
    assert int(asked[1]) >= LEAST
