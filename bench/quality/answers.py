"""The answers that a model reads: a gateway in front of eight real servers, asked the requests of answers.yaml."""

from __future__ import annotations

import tempfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import msgspec
from bpe_openai import get_encoding
from ruamel.yaml import YAML

from bench.gateway import call, measured_gateway
from tests.e2e.foreign_servers import a_repository, real_servers
from tests.gateway_process import GatewayProcess

REQUESTS = Path(__file__).with_name("answers.yaml")
ENCODING = "o200k_base"
MOST_TOKENS = {5: 400, 10: 700}  # of the median answer, by the number of results


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers to all requests with one number of results."""

    tokens: list[int]  # of each one's structuredContent
    descriptions: list[int]  # in characters, of all results but the first
    right: list[int]  # of those of them that are right


async def measure() -> list[str]:
    """Print the figures; return what exceeds its limit."""
    with tempfile.TemporaryDirectory(prefix="pointsman-answers-") as folder:
        servers, absent = real_servers(a_repository(Path(folder) / "repository"))
        print(f"Answers over {len(servers)} real servers, in tokens of structuredContent ({ENCODING})")
        if absent:
            print(f"  not installed (`make foreign` installs them) and left out: {', '.join(absent)}")
        if not servers:
            return []
        async with measured_gateway(servers) as gateway:
            answers = {most: await _ask(gateway, most, servers.keys()) for most in MOST_TOKENS}
    print(f"  {'results':>8}{'median':>9}{'p90':>7}{'largest':>9}{'descriptions but the first':>28}{'right ones':>12}")
    for most, asked in answers.items():
        tokens = sorted(asked.tokens)
        figures = f"{most:8}{median(tokens):9.0f}{tokens[len(tokens) * 9 // 10]:7}{tokens[-1]:9}"
        print(f"  {figures}{median(asked.descriptions):21.0f} chars{median(asked.right or [0]):6.0f} chars")
    if absent:
        return []
    return [
        f"the median answer with {most} results has {median(answers[most].tokens):.0f} tokens, at most {limit} wanted"
        for most, limit in MOST_TOKENS.items()
        if median(answers[most].tokens) > limit
    ]


async def _ask(gateway: GatewayProcess, most: int, servers: Collection[str]) -> Answers:
    encoding = get_encoding(ENCODING)
    answers = Answers([], [], [])
    for request in YAML(typ="safe").load(REQUESTS):
        right = [key for key in request["right"] if key.partition(":")[0] in servers]
        if not right:
            continue
        given = {"query": [request["ask"]], "maxResults": most}
        answer = msgspec.json.decode(await call(gateway, "tool_discovery", given))
        content = answer["result"]["structuredContent"]
        answers.tokens.append(len(encoding.encode(msgspec.json.encode(content).decode())))
        for result in content["results"][1:]:
            length = len(result.get("description", ""))
            answers.descriptions.append(length)
            if result["toolKey"] in right:
                answers.right.append(length)
    return answers
