"""The client that the suite starts to test our other side: a gateway before its mock server, and someone who calls.

The suite gives the mock server's URL as the last argument and says in the environment what it wants to see.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import httpx2
import mcp_types as types
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from pydantic import ConfigDict

from pointsman.router.owner.client import ask
from tests.gateway_process import GatewayProcess, gateway_process
from tests.server_login import server_login

VALUES: dict[str, Any] = {"string": "text", "number": 1.5, "integer": 1, "boolean": True, "object": {}, "array": []}
SIGN_INS = 3  # of one person for one request
Result = TypeVar("Result")
Visit = Callable[[Client], Awaitable[None]]


async def call_all(client: Client) -> None:
    """Call every tool that is offered, with arguments that fit its schema."""
    for tool in (await client.list_tools()).tools:
        properties = tool.input_schema.get("properties", {})
        wanted = {name: VALUES.get(properties[name].get("type"), "text") for name in properties}
        await client.call_tool(tool.name, wanted)


async def call_as_told(client: Client) -> None:
    """Call what the suite names, with the arguments that it names."""
    await client.list_tools()
    for call in json.loads(os.environ["MCP_CONFORMANCE_CONTEXT"])["toolCalls"]:
        await client.call_tool(call["name"], call["arguments"])


async def use_everything(client: Client) -> None:
    await call_all(client)
    for resource in (await client.list_resources()).resources:
        await client.read_resource(resource.uri)
    for prompt in (await client.list_prompts()).prompts:
        await client.get_prompt(prompt.name, {argument.name: "text" for argument in prompt.arguments or []})


async def send_the_schema_back(client: Client) -> None:
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    focal = tools.pop("json_schema_2020_12_tool")
    (echo,) = tools
    await client.call_tool(echo, {"schema": focal.input_schema})


async def load_skills(client: Client) -> None:
    """Load every skill as a client that trusts its server: if `SKILL.md` can be read, read all other files."""
    for skill in (await _request(client, "skills/list"))["skills"]:
        if not await _can_read(client, skill["uri"]):
            continue
        for file in skill["resources"]:
            await _can_read(client, file["uri"])


async def list_skills(client: Client) -> None:
    await _request(client, "skills/list")


async def _can_read(client: Client, uri: str) -> bool:
    try:
        await client.read_resource(uri)
    except MCPError:
        return False
    return True


async def _request(client: Client, method: str) -> dict[str, Any]:
    """Send a request that the SDK does not know."""
    request: Any = types.Request[types.PaginatedRequestParams, str](
        method=method, params=types.PaginatedRequestParams()
    )
    result = await client.session.send_request(request, AnyResult)
    return result.model_dump(by_alias=True)


class AnyResult(types.Result):
    model_config = ConfigDict(extra="allow")


VISITS: dict[str, Visit] = {
    "http-custom-headers": call_as_told,
    "http-standard-headers": use_everything,
    "json-schema-2020-12-preservation": send_the_schema_back,
    "sep-2640-client-no-prefetch": list_skills,
    **dict.fromkeys((f"sep-2640-client-verify-{what}" for what in ("digest", "size", "frontmatter")), load_skills),
}


async def elicited(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    """Accept what is asked, with the defaults that are offered."""
    schema: dict[str, Any] = getattr(params, "requested_schema", {})
    fields = schema.get("properties", {})
    content = {name: field.get("default", VALUES.get(field.get("type"), "text")) for name, field in fields.items()}
    return types.ElicitResult(action="accept", content=content)


def oauth_of(scenario: str) -> dict[str, Any] | str:
    """The `oauth` of the entry: what the suite says of a client that it knows, else `auto`."""
    if scenario == "auth/basic-cimd":  # the one document that the suite knows
        return {"client_id": "https://conformance-test.local/client-metadata.json"}
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    known = {key: context[key] for key in ("client_id", "client_secret") if key in context}
    if "private_key_pem" in context:
        known["private_key"] = context["private_key_pem"]
    if scenario.startswith("auth/client-credentials"):
        known["grant"] = "client_credentials"
    return known or "auto"


async def sign_in_and_call(gateway: GatewayProcess) -> None:
    """Sign in, and call all tools; again as long as the gateway asks for a sign-in, but not for ever."""
    for _ in range(SIGN_INS):
        ended = await server_login(gateway.state_dir, "mock")
        print(*ended, file=sys.stderr)
        said = await visit_gateway(gateway, call_all_and_listen)
        listed = await asyncio.to_thread(ask, gateway.state_dir, "servers")
        asks = "server login" in f"{said} {listed['servers'][0]['reason']}"
        if not asks or "Signed in" not in ended[1]:
            return


async def call_all_and_listen(client: Client) -> str:
    """Call all tools, and return what the gateway says of failures."""
    said = ""
    for tool in (await client.list_tools()).tools:
        result = await client.call_tool(tool.name, {})
        said += "".join(block.text for block in result.content if isinstance(block, types.TextContent))
    return said


async def visit_gateway(gateway: GatewayProcess, visit: Callable[[Client], Awaitable[Result]]) -> Result:
    headers = {"Authorization": f"Bearer {gateway.token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30) as http,
        Client(streamable_http_client(gateway.url, http_client=http), elicitation_callback=elicited) as client,
    ):
        return await visit(client)


async def main(server_url: str) -> None:
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    entry: dict[str, Any] = {"url": server_url, "prefix": ""}
    if scenario.startswith("auth/"):
        entry["oauth"] = oauth_of(scenario)
    config = {"servers": {"mock": entry}, "unassigned": {"exposure": "flat"}}
    with tempfile.TemporaryDirectory() as folder:
        async with gateway_process(Path(folder), config) as gateway:
            if scenario.startswith("auth/") and not scenario.startswith("auth/client-credentials"):
                await sign_in_and_call(gateway)
            else:
                await visit_gateway(gateway, VISITS.get(scenario, call_all))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[-1]))
