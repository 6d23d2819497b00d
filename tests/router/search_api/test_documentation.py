"""The page on the search service shows what it really answers."""

from __future__ import annotations

import json
import re
from pathlib import Path

from pointsman.config.loader import parse
from pointsman.config.model import SearchApiLimits
from tests.router.search_api.search_client import Client

PAGE = (Path(__file__).parents[3] / "docs" / "guide" / "search-api.md").read_text(encoding="utf-8")


async def test_the_call_on_the_page_is_answered_as_the_page_says(client: Client) -> None:
    [body] = re.findall(r"-d '\n(.*?)'\n```", PAGE, re.DOTALL)
    [answer] = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert (await client.post(json.loads(body))).json() == json.loads(answer)


def test_the_example_with_a_language_model_is_a_good_configuration() -> None:
    [example] = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    search_api = parse(example, "example.yaml", {"LLM_KEY": "x"}).search_api
    assert search_api is not None
    assert search_api.provider == "llm"


def test_the_limits_on_the_page_are_those_by_default() -> None:
    for name, value in SearchApiLimits().model_dump().items():
        assert f"| `{name}` | {int(value)} |" in PAGE
