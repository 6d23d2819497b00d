"""`python everyday_server.py NAME`: a server on stdin and stdout with the tools of one everyday service."""

from __future__ import annotations

import sys

from mcp.server.mcpserver import MCPServer

SERVICES = {
    "office": ["get_weather_forecast", "read_calendar", "book_meeting_room", "send_slack_message"],
    "shop": ["stripe_refund_customer", "postgres_query_database", "resize_image", "translate_document"],
    "web": ["browser_take_screenshot", "jira_create_ticket", "search_wiki", "list_pull_requests"],
}

name = sys.argv[1]
server = MCPServer(name)


def answer(request: str = "") -> str:
    return f"{name} did it: {request}"


for tool in SERVICES[name]:
    server.add_tool(answer, name=tool, description=tool.replace("_", " "))

if __name__ == "__main__":
    server.run("stdio")
