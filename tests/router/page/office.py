"""A gateway with servers as people have them, for the screens of tools, lab and activity."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.router.conftest import from_file, workshop
from tests.router.page.owner import HOSTILE

ESCAPES = "\x1b[31mred\x07 \u202etxt.exe"
READS = {"readOnlyHint": True}


def tool(name: str, description: str, properties: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties or {}, **more.pop("schema", {})}
    return {"name": name, "description": description, "inputSchema": schema, **more}


PATH = {"path": {"type": "string", "description": "Where the file is"}}
FILES = [
    tool("read_file", "Read the text of a file.", PATH, annotations=READS, schema={"required": ["path"]}),
    tool(
        "write_file", "Write text into a file, which is created if it is missing.", {**PATH, "text": {"type": "string"}}
    ),
    tool("list_folder", "List the files in a folder.", PATH, annotations=READS),
    tool("delete_file", "Delete a file for good.", PATH),
]
MAIL = [
    tool(
        "send_email",
        "Send an e-mail to one or more people.",
        {
            "to": {"type": "array", "items": {"type": "string"}, "description": "Addresses"},
            "subject": {"type": "string"},
            "priority": {"enum": ["low", "normal", "high"], "default": "normal"},
            "copies": {"type": "integer", "minimum": 0},
            "draft": {"type": "boolean"},
            "command": {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "Not a program"},
        },
        annotations={"destructiveHint": False},
        schema={"required": ["to", "subject"]},
    ),
    tool("search_email", "Find messages by words, sender or date.", {"query": {"type": "string"}}, annotations=READS),
]
BAD = [
    tool("poke", f"{HOSTILE}{ESCAPES}", {HOSTILE: {"type": "string", "description": HOSTILE}}, title=HOSTILE),
    tool(f"x{HOSTILE}", HOSTILE, annotations=READS),
    tool("'\"><script>alert(1)</script>", "${jndi} {% raw %} </pre>"),
]


def office(folder: Path) -> dict[str, Any]:
    """Five tokens, two projects, one server that fails, one that is off, and one whose every text is hostile."""
    return {
        "audit": {"arguments": True},
        "projects": {"research": {"optimization": "bm25"}, "quiet": {"optimization": None}},
        "unassigned": {"optimization": "bm25"},
        "servers": {
            "files": from_file(folder / "files.json", "f", {"tools": FILES}, tool_permissions={"delete_file": False}),
            "mail": from_file(
                folder / "mail.json", "m", {"tools": MAIL}, projects=["research", "quiet"], trust_annotations=True
            ),
            "shop": workshop(folder / "trace", name="Workshop"),
            "bad": from_file(folder / "bad.json", "b", {"tools": BAD}, name=HOSTILE),
            "gone": {"command": "no-such-program-anywhere"},
            "off": workshop(folder / "trace", enabled=False),
        },
        "tokens": {
            "laptop": token("laptop", projects=["*"], servers=["*"]),
            "mailer": token("mailer", projects=["research"], servers=["mail"]),
            "reader": token("reader", projects=["*"], servers=["*"], scopes=["read"]),
            "picky": token("picky", projects=["*"], servers=["*"], tools=["!files:list_*"]),
            "old": token("old", projects=["*"], servers=["*"], expires="2020-01-01"),
        },
    }


def token(name: str, **rights: Any) -> dict[str, Any]:
    return {"sha256": sha256(name.encode()).hexdigest(), **rights}
