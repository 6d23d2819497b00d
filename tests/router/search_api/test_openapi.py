"""The OpenAPI document is true: schemathesis asks the running service what it describes, and what it rules out."""

from __future__ import annotations

import asyncio
import warnings
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from pointsman import __version__
from pointsman.router.search_api.messages import API_VERSION
from tests.router.search_api.asking import Client

EXAMPLES = 60  # of each kind


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
    # In a thread: schemathesis waits for each answer.
    await asyncio.to_thread(ask_all, client.service.url, client.service.headers, mode)


def ask_all(url: str, headers: dict[str, str], mode: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import schemathesis

        schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
        asked = []
        for found in schema.get_all_operations():
            operation = found.ok()  # type: ignore[union-attr]  # or there is no such method, and the test fails
            if mode == "negative" and operation.method != "post":
                continue  # takes nothing that could be wrong

            @settings(
                max_examples=EXAMPLES if operation.method == "post" else 3,
                phases=[Phase.explicit, Phase.generate],
                derandomize=True,
                database=None,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            )
            @given(case=operation.as_strategy(generation_mode=schemathesis.GenerationMode(mode)))
            def ask(case: Any) -> None:
                asked.append(case)
                case.call_and_validate(headers=headers)

            ask()
    assert len(asked) >= EXAMPLES // 2
