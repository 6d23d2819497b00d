"""Names and patterns in the configuration that fit no tool are noted, as far as the tools are known."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pointsman.config.loader import parse
from pointsman.router.doctor.findings import Inspected
from pointsman.router.doctor.patterns import MAX_NOTES, check_patterns

TOOLS = ("files:read_file", "files:delete_file", "web:fetch")
SERVER = {"command": "x"}


def notes(
    config: dict[str, Any], tools: Sequence[str] = TOOLS, held: Sequence[str] = (), **states: dict[str, Any]
) -> list[str]:
    config = {"servers": {"files": SERVER, "web": SERVER}, **config}
    usual = {"enabled": True, "state": "running", "tools": 2}
    listed = [{"id": one, **usual, **states.get(one, {})} for one in config["servers"]]
    loaded = parse(json.dumps(config), "f.yaml", {})
    status = {"servers": {"list": listed}}
    inspected = Inspected(loaded, (), None, Path("x"), status=status, tools=tools, held_tools=held)
    return [finding.message for finding in check_patterns(inspected)]


def test_what_fits_a_tool_is_not_noted() -> None:
    project = {"tools": ["files:*", "!*:delete_*"], "confirm": ["files:delete_file", "*:fetch"]}
    entry = SERVER | {"tool_rates": {"fetch": {"calls_per_minute": 1}}, "tool_permissions": {"fetch": False}}
    assert notes({"projects": {"p": project}, "servers": {"files": SERVER, "web": entry}}) == []


def test_a_misspelt_tool_is_noted_wherever_it_is_named() -> None:
    entry = SERVER | {"tool_rates": {"delete_flie": {"calls_per_minute": 1}}, "confirm": ["files:deleet_*"]}
    found = notes(
        {
            "unassigned": {"confirm": ["files:delete_fiel"], "tools": ["!files:reed"]},
            "servers": {"files": entry, "web": SERVER},
        }
    )
    assert found == [
        "`unassigned.confirm`: `files:delete_fiel` fits no tool that a server lists. Did you mean `files:delete_file`?",
        "`unassigned.tools`: `!files:reed` fits no tool that a server lists.",
        "`servers.files.confirm`: `files:deleet_*` fits no tool that a server lists.",
        "`servers.files.tool_rates`: `files:delete_flie` fits no tool that a server lists. "
        "Did you mean `files:delete_file`?",
    ]


def test_nothing_is_concluded_about_servers_whose_tools_are_not_all_known() -> None:
    config = {"unassigned": {"confirm": ["files:x", "*:x"]}}
    for state in ({"state": "failed"}, {"enabled": True, "state": "starting"}):
        assert notes(config, files=state) == []
    assert notes(config, TOOLS[2:]) == []  # `files` has listed nothing
    disabled = {"enabled": False, "state": "stopped", "tools": None}
    assert notes(config, files=disabled) == ["`unassigned.confirm`: `*:x` fits no tool that a server lists."]


def test_the_tools_that_wait_for_approval_are_known() -> None:
    config = {"unassigned": {"confirm": ["files:move_file", "files:moev_file", "*:copy_*"]}}
    told = ["`unassigned.confirm`: `files:moev_file` fits no tool that a server lists. Did you mean `files:move_file`?"]
    held = ["files:move_file", "files:copy_file"]
    assert notes(config, held=held) == told
    assert notes(config, TOOLS[2:], held) == told


def test_the_notes_are_bounded() -> None:
    found = notes({"unassigned": {"confirm": [f"files:x{number}" for number in range(50)]}})
    assert len(found) == MAX_NOTES + 1
    assert found[-1] == "30 more names fit no tool."
