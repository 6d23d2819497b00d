"""What the test does with the agent that the Pydantic AI block sets up."""

import asyncio
import json

from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel
from report import report
from setup_block import agent

seen = {}


def think(messages, info):
    """A model that knows what it wants: it discovers, executes what it found, and says what it heard."""
    returned = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
    if not returned:
        seen["tools"] = sorted(tool.name for tool in info.function_tools)
        return ModelResponse([ToolCallPart("tool_discovery", {"query": ["what is the current time in Tokyo"]})])
    content = returned[0].content
    if returned[0].tool_name == "tool_discovery":
        seen["found"] = content["results"][0]["toolKey"]
        arguments = {"toolKey": seen["found"], "arguments": {"timezone": "Asia/Tokyo"}}
        return ModelResponse([ToolCallPart("tool_execute", arguments)])
    return ModelResponse([TextPart(content if isinstance(content, str) else json.dumps(content))])


answer = asyncio.run(agent.run("What time is it in Tokyo?", model=FunctionModel(think))).output
report(seen["tools"], seen["found"], answer)
