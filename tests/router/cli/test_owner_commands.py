"""The owner's commands against a running gateway: each change is in the file, in effect, and told."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from pointsman.config.loader import load
from tests.gateway_process import gateway_process
from tests.router.cli.commands import SCRIPT, run
from tests.router.conftest import WORKSHOP, Shop, workshop
from tests.servers.workshop import TOOLS

SECRET = "ghp_" + "a1" * 18
CONFIG = """# my servers
servers:
  broken: {command: python3, args: [-S, -c, "import sys; print('no such database', file=sys.stderr); sys.exit(3)"]}
  # the last one
  off:
    command: no-such-program-anywhere  # not here
    enabled: false
projects: {red: {}}
"""


async def test_servers_are_added_changed_and_removed_while_the_gateway_runs(shop: Shop, tmp_path: Path) -> None:
    new = [sys.executable, "-S", str(WORKSHOP), str(tmp_path / "trace2")]
    added = await run(tmp_path, "server", "add", "new", "--env", f"KEY={SECRET}", "--project", "attic", *new)
    assert (added.code, "is running with 8 tools" in added.stdout) == (0, True), added.stderr
    assert "as plain text" in added.stderr
    entry = json.loads(shop.gateway.config_file.read_text())["servers"]["new"]
    assert entry == {"command": new[0], "args": new[1:], "env": {"KEY": SECRET}, "projects": ["attic"]}

    listed = (await run(tmp_path, "server", "list", "--json")).json
    assert listed["gateway"] is True
    by_id = {one["id"]: one for one in listed["servers"]}
    assert (by_id["new"]["state"], by_id["new"]["tools"], by_id["new"]["projects"]) == ("running", 8, ["attic"])
    assert SECRET not in json.dumps(listed)

    twice = await run(tmp_path, "server", "add", "new", "uvx", "x")
    assert twice.code == 2
    assert "already a server `new`" in twice.stderr
    off = await run(tmp_path, "server", "disable", "new", "--json")
    assert off.code == 0
    assert (off.json["server"]["enabled"], off.json["server"]["state"]) == (False, "stopped")
    for words in (("server", "test", "new"), ("tools", "call", "new:paint")):
        disabled = await run(tmp_path, *words)
        assert disabled.code == 1
        assert "Server `new` is disabled." in disabled.stdout + disabled.stderr
        assert "Enable it with `pointsman server enable new`." in disabled.stderr
    refused = await run(tmp_path, "server", "restart", "new")
    assert (refused.code, "pointsman server enable new" in refused.stderr) == (1, True)
    on = await run(tmp_path, "server", "enable", "new", "--json")
    assert (on.code, on.json["server"]["state"], on.json["server"]["tools"]) == (0, "running", 8)
    restarted = await run(tmp_path, "server", "restart", "new")
    assert "is running with 8 tools" in restarted.stdout
    gone = await run(tmp_path, "server", "remove", "new")
    assert gone.code == 0
    assert "new" not in json.loads(shop.gateway.config_file.read_text())["servers"]
    unknown = await run(tmp_path, "server", "test", "shp")
    assert (unknown.code, "Did you mean `shop`?" in unknown.stderr) == (2, True)


async def test_a_server_that_fails_is_told_with_its_own_words(shop: Shop, tmp_path: Path) -> None:
    script = "import sys; print('no such database', file=sys.stderr); sys.exit(3)"
    added = await run(tmp_path, "server", "add", "broken", "--", sys.executable, "-S", "-c", script)
    assert added.code == 1
    assert added.stdout == f"Added server `broken` to {shop.gateway.config_file}.\n"
    assert "does not run: it exited with code 3" in added.stderr
    assert "| no such database" in added.stderr
    await asyncio.sleep(1)  # for the watcher of the file, which has nothing left to do
    assert shop.gateway.stderr.count("configuration reloaded") == 1
    assert "pointsman server log broken" in added.stderr
    tried = await run(tmp_path, "server", "test", "gone")
    assert (tried.code, "no-such-program-anywhere" in tried.stderr) == (1, True)
    invalid = await run(tmp_path, "server", "add", "clock", "uvx mcp-server-time")
    assert invalid.code == 2
    assert "was not changed" in invalid.stderr


async def test_a_tool_that_takes_text_gets_the_text_that_was_typed(shop: Shop, tmp_path: Path) -> None:
    for word in ("1", "true", "null", "[1]", "NaN"):  # `object` is a string, whatever its text looks like
        typed = await run(tmp_path, "tools", "call", "shop:paint", f"object={word}", "coats=2")
        assert typed.code == 0, typed.stderr
        assert shop.ran()[-1]["params"]["arguments"] == {"object": word, "coats": 2}


async def test_so_does_a_tool_of_a_server_that_is_just_starting(tmp_path: Path) -> None:
    server = workshop(tmp_path / "trace")
    late = {"command": "sh", "args": ["-c", 'sleep 1; exec "$0" "$@"', server["command"], *server["args"]]}
    async with gateway_process(tmp_path, {"servers": {"shop": late}}, without=("shop",)):
        typed = await run(tmp_path, "tools", "call", "shop:paint", "object=1")
    assert typed.code == 0, typed.stderr


async def test_arguments_that_cannot_be_sent_are_explained(shop: Shop, tmp_path: Path) -> None:
    for sent, words in (
        ('{"object": "' + "x" * (1 << 20) + '"}', "takes 1048"),
        ('{"object": "\\ud800"}', "is not UTF-8 text"),
        ('{"object": NaN}', "no numbers such as NaN"),
        ('{"object":' * 100_000, "nested too deeply"),
    ):
        unsent = await run(tmp_path, "tools", "call", "shop:paint", "-", stdin=sent)
        assert (unsent.code in (1, 2), words in unsent.stderr) == (True, True), unsent.stderr
    binary = await run(tmp_path, "tools", "call", "shop:paint", os.fsdecode(b"object=\xff"))
    assert (binary.code, "is not UTF-8 text" in binary.stderr) == (2, True), binary.stderr
    assert not shop.ran()


async def test_a_search_that_models_do_not_have_is_said_to_be_the_owners(tmp_path: Path) -> None:
    config = {"servers": {"shop": workshop(tmp_path / "trace")}, "unassigned": {"optimization": None}}
    async with gateway_process(tmp_path, config):
        found = await run(tmp_path, "tools", "search", "paint an object")
    assert "shop:paint" in found.stdout
    assert "A model without a project does not get these: `unassigned.optimization` is off." in found.stderr


async def test_tools_are_listed_searched_and_called_as_the_owner(shop: Shop, tmp_path: Path) -> None:
    listed = (await run(tmp_path, "tools", "list", "--server", "shop", "--json")).json
    assert {tool["toolKey"] for tool in listed["tools"]} == {f"shop:{tool['name']}" for tool in TOOLS}
    assert [tool["toolKey"] for tool in listed["tools"] if not tool["allowed"]] == ["shop:erase"]
    shown = await run(tmp_path, "tools", "list")
    assert "attic:paint\n    Paint an object in a colour\n" in shown.stdout
    assert "Server `gone` is missing:" in shown.stderr

    found = (await run(tmp_path, "tools", "search", "paint", "an", "object", "--json")).json
    assert found["results"][0]["toolKey"] in ("shop:paint", "attic:paint")
    both = await run(tmp_path, "tools", "search", "paint an object", "--also", "say which colour it is")
    assert "shop:paint  (for: paint an object)\n" in both.stdout
    assert "shop:colour  (for: say which colour it is)\n" in both.stdout
    inside = (await run(tmp_path, "tools", "search", "paint an object", "--project", "attic", "--json")).json
    assert {result["toolKey"].partition(":")[0] for result in inside["results"]} == {"attic"}

    called = await run(tmp_path, "tools", "call", "attic:paint", "object=chair", "coats=2", "--json")
    assert called.code == 0, called.stderr
    assert shop.ran()[-1]["params"]["arguments"] == {"object": "chair", "coats": 2}
    piped = await run(tmp_path, "tools", "call", "shop:paint", "-", stdin='{"object": "door"}')
    assert (piped.code, piped.stdout) == (0, "paint done\n")
    before = len(shop.ran())
    for refused, words in (
        (("shop:paint", "objct=chair"), "do not fit `shop:paint`"),
        (("shop:erase",), "No tool `shop:erase`"),
        (("shop:nothing",), "pointsman tools list"),
    ):
        ran = await run(tmp_path, "tools", "call", *refused)
        assert (ran.code, words in ran.stderr) == (1, True), ran.stderr
    assert (await run(tmp_path, "tools", "call", "shop:paint", "chair")).code == 2
    assert len(shop.ran()) == before  # none of them reached the server
    gone = await run(tmp_path, "tools", "call", "gone:anything")
    assert (gone.code, "`pointsman doctor` names the reason." in gone.stderr) == (1, True), gone.stderr
    assert "use another tool" not in gone.stderr
    searched = await run(tmp_path, "tools", "search", "paint")
    assert "their tools are missing: `gone`. `pointsman doctor` names the reason." in searched.stderr
    timed_out = await run(tmp_path, "tools", "call", "shop:hang")
    assert (timed_out.code, "did not answer within 1 s" in timed_out.stderr) == (1, True)

    rows = await shop.rows("--token", "@owner")
    assert [row["kind"] for row in rows[:2]] == ["discovery", "discovery"]
    calls = [(row["toolKey"], row["outcome"]) for row in rows if row["kind"] == "execute"]
    assert calls[:3] == [("attic:paint", "ok"), ("shop:paint", "ok"), ("shop:paint", "error")]
    assert {row["client"] for row in rows} == {"pointsman cli"}


async def test_projects_are_listed_and_set_in_effect_at_once(shop: Shop, tmp_path: Path) -> None:
    ran = await run(tmp_path, "project", "set", "attic", "--optimization", "off", "--json")
    assert (ran.code, ran.json["gateway"], ran.json["project"]["optimization"]) == (0, True, "off")
    found = (await run(tmp_path, "tools", "search", "paint", "--project", "attic", "--json")).json
    assert found["results"] == []
    created = await run(tmp_path, "project", "set", "cellar", "--optimization", "bm25", "--create")
    assert created.code == 0, created.stderr
    listed = (await run(tmp_path, "project", "list", "--json")).json["projects"]
    assert [(one["id"], one["optimization"]) for one in listed] == [("", "bm25"), ("attic", "off"), ("cellar", "bm25")]
    flat = await run(tmp_path, "project", "set", "attic", "--exposure", "flat")
    assert "Reconnected, because `exposure` decides whether a server may offer apps: attic." in flat.stderr
    listed = (await run(tmp_path, "server", "list", "--json")).json["servers"]
    assert all(one["tools"] is not None for one in listed if one["state"] == "running")
    assert "Reconnected" not in (await run(tmp_path, "project", "set", "attic", "--exposure", "flat")).stderr
    unknown = await run(tmp_path, "project", "set", "atic", "--optimization", "bm25")
    assert (unknown.code, "Did you mean `attic`?" in unknown.stderr) == (2, True)


async def test_a_change_that_the_gateway_rejects_is_told_and_taken_back(tmp_path: Path) -> None:
    """Only the environment of the gateway counts, not that of the shell in which the command runs."""
    async with gateway_process(tmp_path, {"servers": {}}, env={"ONLY_THERE": "1"}) as gateway:
        before = gateway.config_file.read_text()
        ran = await run(tmp_path, "server", "add", "new", "--env", "A=${ONLY_HERE}", "uvx", "x", ONLY_HERE="1")
        assert ran.code == 2
        assert f"The running gateway rejects this change, so {gateway.config_file} is as it was before" in ran.stderr
        assert "the environment variable ONLY_HERE is not set" in ran.stderr
        assert gateway.config_file.read_text() == before
        assert (await run(tmp_path, "status", "--json")).json["problems"] == {}

        args = ("--env", "A=${ONLY_THERE}", sys.executable, "-c", "import sys; sys.exit('error: no database')")
        ran = await run(tmp_path, "server", "add", "new", "--json", *args)
        assert (ran.code, ran.json["server"]["state"]) == (1, "failed")  # it was added, and cannot run
        assert "ONLY_THERE is not set in this shell" in ran.stderr
        assert "${ONLY_THERE}" in gateway.config_file.read_text()

        # What was invalid before the change is no reason to take the change back.
        broken = gateway.config_file.read_text().replace('"tokens"', '"limits": {"nonsense": 1}, "tokens"')
        gateway.config_file.write_text(broken)
        await gateway.until_logged("limits.nonsense")
        ran = await run(tmp_path, "server", "remove", "new")
        assert ran.code == 1
        assert "was changed, but the running gateway keeps the previous configuration" in ran.stderr
        assert "ONLY_THERE" not in gateway.config_file.read_text()


async def test_a_variable_that_is_not_set_here_is_named_where_no_gateway_runs(tmp_path: Path) -> None:
    file = tmp_path / "pointsman.yaml"
    file.write_text(CONFIG)
    ran = await run(tmp_path, "server", "add", "new", "http://127.0.0.1:1/mcp", "--header", "X: Bearer ${NOT_SET}")
    assert ran.code == 0, ran.stderr
    assert (
        "NOT_SET is not set in this shell. Set it where the gateway is started: without it, none starts." in ran.stderr
    )
    assert "${NOT_SET}" in file.read_text()
    wrong = await run(tmp_path, "server", "add", "other", "--project", "nowhere", "--env", "A=${NOT_SET}", "uvx")
    assert wrong.code == 2  # other mistakes are refused as before
    assert "nowhere" in wrong.stderr


async def test_without_a_gateway_the_file_is_edited_all_the_same(tmp_path: Path) -> None:
    file = tmp_path / "pointsman.yaml"
    file.write_text(CONFIG)
    added = await run(tmp_path, "server", "add", "time", "uvx", "mcp-server-time", "--local-timezone", "UTC", "--json")
    assert (added.code, added.stdout, "No gateway runs now" in added.stderr) == (0, added.stdout, True)
    assert (
        '  time:\n    command: uvx\n    args: [mcp-server-time, "--local-timezone", UTC, "--json"]\n'
        in file.read_text()
    )
    assert (await run(tmp_path, "server", "enable", "off")).code == 0
    assert (await run(tmp_path, "server", "remove", "time")).code == 0
    assert file.read_text() == CONFIG.replace("enabled: false", "enabled: true")
    assert (await run(tmp_path, "project", "set", "red", "--exposure", "flat")).code == 0
    listed = (await run(tmp_path, "server", "list", "--json")).json
    assert listed["gateway"] is False
    assert [(one["id"], one["state"]) for one in listed["servers"]] == [
        ("broken", "not running"),
        ("off", "not running"),
    ]
    tried = await run(tmp_path, "server", "test", "broken")
    assert tried.code == 1
    assert "it exited with code 3" in tried.stderr
    assert "| no such database" in tried.stderr
    for needs_gateway in (("server", "restart", "broken"), ("tools", "list"), ("tools", "call", "a:b")):
        assert (await run(tmp_path, *needs_gateway)).code == 3


async def test_options_may_follow_a_url(tmp_path: Path) -> None:
    config = tmp_path / "pointsman.yaml"
    config.write_text("servers: {}\n")
    header = ("--header", "Authorization: Bearer ${TRACKER_TOKEN:-}")
    ran = await run(tmp_path, "server", "add", "tracker", "https://tracker.example/mcp", *header, "--transport", "sse")
    assert ran.code == 0, ran.stderr
    [tracker] = load(config, {}).servers.values()
    assert (tracker.url, tracker.transport, list(tracker.headers)) == (
        "https://tracker.example/mcp",
        "sse",
        ["Authorization"],
    )


async def test_names_are_completed_from_the_running_gateway(shop: Shop, tmp_path: Path) -> None:
    def completed(words: str, count: int) -> dict[str, str]:
        return {"_POINTSMAN_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(count)}

    await run(tmp_path, "status")  # so that the lists are in
    for words, count, expected in (
        ("pointsman server restart s", 3, ["plain,shop"]),
        ("pointsman tools call attic:p", 3, ["plain,attic:paint"]),
        ("pointsman project set a", 3, ["plain,attic"]),
        ("pointsman client add cl", 3, ["plain,claude-code", "plain,claude-desktop", "plain,cline"]),
        ("pointsman import --from z", 3, ["plain,zed"]),
        ("pointsman token create --client z", 4, ["plain,zed"]),
        ("pointsman token revoke t", 3, ["plain,test"]),
    ):
        ran = await run(tmp_path, program=SCRIPT, **completed(words, count))
        assert ran.stdout.splitlines() == expected


@pytest.mark.parametrize(
    "args", [("server", "add", "x"), ("project", "set", "red"), ("server", "add", "x", "http://x", "y")]
)
async def test_a_mistake_on_the_command_line_changes_nothing(tmp_path: Path, args: tuple[str, ...]) -> None:
    (tmp_path / "pointsman.yaml").write_text(CONFIG)
    ran = await run(tmp_path, *args)
    assert ran.code == 2
    assert ran.stderr
    assert (tmp_path / "pointsman.yaml").read_text() == CONFIG
