"""The headers of a modern HTTP request, which repeat its method, its name and some arguments."""

from __future__ import annotations

from pointsman.core.model import Json
from pointsman.core.sdk import (
    NAME_BEARING_METHODS,
    encode_header_value,
    mcp_param_headers,
    x_mcp_header_map,
)


class ModernHeaders:
    """Builds the headers. Learns from forwarded tool lists which arguments go into headers."""

    def __init__(self) -> None:
        self._mirrored: dict[str, dict[tuple[str, ...], str]] = {}

    def of(self, message: Json, version: str) -> dict[str, str]:
        method, params = message["method"], message["params"]
        headers = {"MCP-Protocol-Version": version, "Mcp-Method": method}
        field = NAME_BEARING_METHODS.get(method)
        name = params.get(field) if field is not None else None
        if not isinstance(name, str):
            return headers
        headers["Mcp-Name"] = encode_header_value(name)
        arguments = params.get("arguments")
        if method == "tools/call" and name in self._mirrored and isinstance(arguments, dict):
            headers |= mcp_param_headers(self._mirrored[name], arguments)
        return headers

    def learn(self, answer: Json) -> None:
        """Read the mirrored arguments from the answer to `tools/list`."""
        result = answer.get("result")
        tools = result.get("tools") if isinstance(result, dict) else None
        for tool in tools if isinstance(tools, list) else ():
            if isinstance(tool, dict) and isinstance(tool.get("name"), str):
                self._mirrored.pop(tool["name"], None)
                if mirrored := x_mcp_header_map(tool.get("inputSchema")):
                    self._mirrored[tool["name"]] = mirrored
