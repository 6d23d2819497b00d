"""The tools that the benchmark's servers offer: one that is called, and as many plausible ones as discovery needs."""

from __future__ import annotations

from itertools import product
from typing import Any

ECHO = "echo"
PRODUCE = "produce"
VERBS = (
    *("create", "read", "update", "delete", "list", "search", "export", "import", "archive", "restore"),
    *("approve", "reject", "assign", "merge", "split", "convert", "validate", "schedule", "cancel", "summarize"),
    *("translate", "compare", "share", "lock", "rename"),
)
NOUNS = (
    *("invoice", "customer", "calendar event", "pull request", "issue", "repository", "branch", "file", "folder"),
    *("spreadsheet", "slide deck", "email", "chat message", "contact", "payment", "refund", "subscription", "order"),
    *("shipment", "warehouse item", "ticket", "meeting", "task", "project", "report", "dashboard", "database table"),
    *("query", "server log", "deployment", "container", "certificate", "user account", "permission", "image", "video"),
    *("translation", "weather forecast", "flight", "hotel booking", "map route"),
)
QUERIES = (
    "send the customer a refund for a wrong payment",
    "what is on my calendar tomorrow",
    "merge the pull request and delete its branch",
    "look for errors in the server log",
    "book a hotel and a flight",
)


def echo_tool() -> dict[str, Any]:
    text = {"type": "string", "description": "What to send back", "maxLength": 10_000}
    schema = {"type": "object", "properties": {"text": text}, "required": ["text"], "additionalProperties": False}
    return {"name": ECHO, "description": "Sends back the text it was given.", "inputSchema": schema}


def produce_tool() -> dict[str, Any]:
    size = {"type": "integer", "description": "How many characters", "minimum": 1, "maximum": 16 << 20}
    schema = {"type": "object", "properties": {"size": size}, "required": ["size"], "additionalProperties": False}
    return {"name": PRODUCE, "description": "Makes a text of a given size.", "inputSchema": schema}


def many_tools(server: int, count: int) -> list[dict[str, Any]]:
    """`count` tools of server number `server`; no two servers of a run share one."""
    pairs = list(product(VERBS, NOUNS))
    numbers = range(server * count, (server + 1) * count)
    return [_tool(*pairs[number % len(pairs)], number // len(pairs)) for number in numbers]


def _tool(verb: str, noun: str, lap: int) -> dict[str, Any]:
    """A tool that comes up again gets another name and other words."""
    identifier = {"type": "string", "description": f"Which {noun} is meant"}
    options = {"type": "object", "description": f"How to {verb} it", "properties": {"dry_run": {"type": "boolean"}}}
    description = f"{verb.capitalize()} a {noun} in the workspace that the account belongs to."
    return {
        "name": f"{verb}_{noun}{f'_{lap}' if lap else ''}".replace(" ", "_"),
        "description": f"{description} Edition {lap} of {NOUNS[lap % len(NOUNS)]}." if lap else description,
        "inputSchema": {
            "type": "object",
            "properties": {f"{noun.replace(' ', '_')}_id": identifier, "options": options},
        },
    }
