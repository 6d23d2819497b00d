"""The gate: a call that needs a yes runs with one and never without, in both eras and whatever ends meanwhile."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from mcp import types
from mcp.client.context import ClientRequestContext

from pointsman.router.owner.client import OperationError, ask
from pointsman.router.state.sqlite_values import SqliteKeyValues
from tests.e2e.client import BOTH_ERAS, Mode
from tests.e2e.people import Person, person
from tests.e2e.test_eras import stdio_asker
from tests.gateway_process import GatewayProcess, gateway_process
from tests.router.conftest import audit_rows, from_file
from tests.router.raw_client import Era, Speaker, speaker

SERVERS = ("old", "new")
FORM: dict[str, Any] = {"elicitation": {"form": {}}}
READS, WRITES = {"readOnlyHint": True}, {"destructiveHint": False}


@dataclass
class Judge(Person):
    """Answers the gate's questions with the words it was given, and a server's own with its name."""

    words: list[Any] = field(default_factory=list)  # an answer, or a whole result
    judged: list[str] = field(default_factory=list)  # the questions of the gate

    async def elicited(self, context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestFormParams)
        if "answer" not in params.requested_schema["properties"]:
            return await super().elicited(context, params)
        self.judged.append(params.message)
        if self.silent:
            await asyncio.Event().wait()
        word = self.words.pop(0)
        return types.ElicitResult(action="accept", content={"answer": word}) if isinstance(word, str) else word


@dataclass
class Gated:
    gateway: GatewayProcess
    folder: Path

    @property
    def trace(self) -> Path:
        return self.folder / "trace"

    def ran(self, tag: str) -> int:
        """How often a call with this tag reached a server."""
        return self.trace.read_text().splitlines().count(f"began {tag}") if self.trace.exists() else 0

    async def owner(self, operation: str, **parameters: Any) -> Any:
        return await asyncio.to_thread(ask, self.gateway.state_dir, operation, **parameters)

    async def pending(self, tool_key: str, tag: str = "") -> list[dict[str, Any]]:
        """Those that nobody has answered. Other tests may leave some behind, so `tag` is in the arguments."""
        listed = [one for one in (await self.owner("approvals"))["pending"] if one["answer"] is None]
        return [one for one in listed if one["toolKey"] == tool_key and tag in one["arguments"]]

    async def one_pending(self, tool_key: str, tag: str = "") -> dict[str, Any]:
        async with asyncio.timeout(20):
            while not (found := await self.pending(tool_key, tag)):
                await asyncio.sleep(0.02)
        assert len(found) == 1, found
        return found[0]

    async def rows(self, tool_key: str) -> list[tuple[Any, ...]]:
        rows = await audit_rows(self.gateway.state_dir, "--tool", tool_key)
        return [(row["outcome"], row["code"], row.get("confirmed")) for row in rows]


def config_of(folder: Path) -> dict[str, Any]:
    trace = folder / "trace"
    schema = {"type": "object"}
    tools = [
        {"name": "look", "inputSchema": schema, "annotations": READS},
        {"name": "add", "inputSchema": schema, "annotations": WRITES},
        {"name": "wipe", "inputSchema": schema},
        {"name": "announce", "inputSchema": schema, "annotations": READS},
    ]
    return {
        "unassigned": {"confirm": "destructive"},
        "projects": {"flat": {"exposure": "flat", "confirm": ["*:look"]}},
        "servers": {
            "old": stdio_asker("legacy", trace),
            "new": stdio_asker("modern", trace),
            "kept": from_file(folder / "kept.json", "k", {"tools": tools}, trust_annotations=True, pin="off"),
            "flat": from_file(folder / "flat.json", "f", {"tools": tools}, trust_annotations=True, projects=["flat"]),
        },
    }


@pytest.fixture(scope="module")
async def gated(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gated]:
    folder = tmp_path_factory.mktemp("gated")
    async with gateway_process(folder, config_of(folder)) as gateway:
        yield Gated(gateway, folder)


def code_of(result: types.CallToolResult) -> str:
    assert result.is_error
    return str((result.structured_content or {})["error"]["code"])


# ------------------------------------------------------------------ the four cells


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("mode", BOTH_ERAS)
async def test_a_call_is_asked_once_and_runs_once_in_every_cell(mode: Mode, server: str, gated: Gated) -> None:
    tag = f"cell-{mode}-{server}"
    async with person(gated.gateway, mode, who=(judge := Judge("ada", words=["once"] * 3))) as (_, model):
        assert await model.text(f"{server}:plain", tag=tag) == f"plain {tag}"
        assert gated.ran(tag) == 1
        (asked,) = judge.judged
        assert f"Run `{server}:plain`?" in asked
        assert f'"tag": "{tag}"' in asked
        assert "counts as destructive" in asked
        # The server's own questions are no new call, however many rounds they take.
        assert await model.text(f"{server}:twice", tag=tag) == f"ada:{tag}/1 ada:{tag}/2"
        assert len(judge.judged) == 2
        assert await model.text(f"{server}:plain", tag=tag) == f"plain {tag}"  # `once` was for one call
        assert len(judge.judged) == 3


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("mode", BOTH_ERAS)
async def test_without_a_yes_nothing_runs(mode: Mode, server: str, gated: Gated) -> None:
    answers = [
        "refuse",
        "yes",
        types.ElicitResult(action="decline"),
        types.ElicitResult(action="cancel", content={"answer": "once"}),
        types.ElicitResult(action="accept"),
        types.ElicitResult(action="accept", content={"answer": 1}),
        types.ElicitResult(action="accept", content={"other": "once"}),
    ]
    tag = f"no-{mode}-{server}"
    async with person(gated.gateway, mode, who=(judge := Judge("ada", words=list(answers)))) as (_, model):
        for _ in answers:
            assert code_of(await model.execute(f"{server}:plain", tag=tag)) == "confirmation_refused"
    assert len(judge.judged) == len(answers)
    assert gated.ran(tag) == 0
    assert ("denied", "confirmation_refused", "client refused") in await gated.rows(f"{server}:plain")


@pytest.mark.parametrize("mode", BOTH_ERAS)
async def test_an_answer_for_the_session_is_for_this_tool_and_client_only(mode: Mode, gated: Gated) -> None:
    words = ["session", "once"]
    async with person(gated.gateway, mode, who=(judge := Judge("ada", words=words))) as (_, model):
        for number in range(3):
            assert await model.text("old:report", tag=f"s{number}")
        assert len(judge.judged) == 1
        assert await model.text("old:plain", tag="s") == "plain s"
        assert len(judge.judged) == 2
    if mode == "legacy":
        async with person(gated.gateway, mode, who=(other := Judge("bob", words=["refuse"]))) as (_, model):
            assert code_of(await model.execute("old:report", tag="s0")) == "confirmation_refused"
            assert len(other.judged) == 1
    assert ("ok", None, "client session") in await gated.rows("old:report")
    assert ("ok", None, "session") in await gated.rows("old:report")


async def test_what_trusted_annotations_claim_to_spare_is_not_asked(gated: Gated) -> None:
    async with person(gated.gateway, "auto", who=(judge := Judge("ada", words=["once"]))) as (_, model):
        assert await model.text("kept:look") == "k"
        assert await model.text("kept:add") == "k"
        assert judge.judged == []
        assert await model.text("kept:wipe") == "k"
        assert "it has no annotations" in judge.judged[0]


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_flat_tools_go_through_the_same_gate(era: Era, gated: Gated) -> None:
    async with speaker(gated.gateway, era, project="flat") as one:
        assert "isError" not in await one.call("flat__add")
        refused = await one.call("flat__look")
        assert refused["structuredContent"]["error"]["code"] == "confirmation_required"


# ------------------------------------------------------------------ a client that cannot be asked


@pytest.mark.parametrize("mode", BOTH_ERAS)
async def test_a_client_that_cannot_be_asked_repeats_its_call_after_the_owner_said_yes(
    mode: Mode, gated: Gated
) -> None:
    tag = f"deaf-{mode}"
    async with person(gated.gateway, mode, able=False) as (_, model):
        refused = await model.execute("old:plain", tag=tag)
        assert code_of(refused) == "confirmation_required"
        (block,) = refused.content
        assert isinstance(block, types.TextContent)
        named = re.search(r"`pointsman approve (\w+)`", block.text)
        assert named is not None
        assert code_of(await model.execute("old:plain", tag=tag)) == "confirmation_required"
        pending = await gated.one_pending("old:plain", tag)  # it is listed once, however often it is repeated
        assert pending["id"] == named[1]
        assert pending["asked"] is False
        assert tag in pending["arguments"]
        await gated.owner("answer_approval", id=named[1], answer="once")
        assert code_of(await model.execute("old:plain", tag=f"{tag}!")) == "confirmation_required"
        assert gated.ran(tag) == 0
        assert await model.text("old:plain", tag=tag) == f"plain {tag}"
        assert code_of(await model.execute("old:plain", tag=tag)) == "confirmation_required"
        assert gated.ran(tag) == 1
        for one in await gated.pending("old:plain", tag):
            await gated.owner("answer_approval", id=one["id"], answer="refuse")
        assert code_of(await model.execute("old:plain", tag=tag)) == "confirmation_refused"
        with pytest.raises(OperationError, match="has been answered already"):
            await gated.owner("answer_approval", id=named[1], answer="once")
    assert (gated.ran(tag), gated.ran(f"{tag}!")) == (1, 0)
    rows = await gated.rows("old:plain")
    assert {("denied", "confirmation_required", "listed"), ("ok", None, "cli once")} <= set(rows)


async def test_always_is_for_one_token_and_tool_until_its_definition_changes(gated: Gated) -> None:
    async with person(gated.gateway, "auto", able=False) as (_, model):
        assert code_of(await model.execute("kept:wipe")) == "confirmation_required"
        await gated.owner("answer_approval", id=(await gated.one_pending("kept:wipe"))["id"], answer="always")
        assert await model.text("kept:wipe", all="of it") == "k"
        assert await model.text("kept:wipe", all="again") == "k"
        file = gated.folder / "kept.json"
        file.write_text(file.read_text().replace('{"name": "wipe"', '{"name": "wipe", "description": "Wipes more"'))
        assert await model.text("kept:announce") == "k"
        async with asyncio.timeout(20):
            while not (answer := await model.execute("kept:wipe", all="more")).is_error:
                await asyncio.sleep(0.05)
        assert code_of(answer) == "confirmation_required"
        (standing,) = (await gated.owner("approvals"))["always"]
        assert (standing["toolKey"], standing["inEffect"]) == ("kept:wipe", False)
        await gated.owner("answer_approval", id=(await gated.one_pending("kept:wipe"))["id"], answer="always")
        assert await model.text("kept:wipe", all="more") == "k"
        await gated.owner("withdraw_approval", id=standing["id"])
        assert code_of(await model.execute("kept:wipe", all="more, again")) == "confirmation_required"
    changes = await audit_rows(gated.gateway.state_dir, "--kind", "change")
    said = [(row["method"], row["code"], row["client"]) for row in changes if row["toolKey"] == "kept:wipe"]
    assert ("approval/always", "tokens.test", "pointsman cli") in said
    assert ("approval/withdraw", "tokens.test", "pointsman cli") in said


async def test_an_answer_that_was_withdrawn_is_asked_again(gated: Gated) -> None:
    async def listed(answer: str | None = None) -> str:
        found = (await gated.owner("approvals"))["pending"]
        (one,) = (one for one in found if "back" in one["arguments"] and one["answer"] == answer)
        return str(one["id"])

    async with person(gated.gateway, "auto", able=False) as (_, model):
        assert code_of(await model.execute("new:report", tag="back")) == "confirmation_required"
        await gated.owner("answer_approval", id=await listed(), answer="always")
        assert not any("back" in one["arguments"] for one in (await gated.owner("approvals"))["pending"])
        assert await model.text("new:report", tag="back")
        (standing,) = [one for one in (await gated.owner("approvals"))["always"] if one["toolKey"] == "new:report"]
        await gated.owner("withdraw_approval", id=standing["id"])
        assert code_of(await model.execute("new:report", tag="back")) == "confirmation_required"
        await gated.owner("answer_approval", id=await listed(), answer="once")
        taken = await gated.owner("withdraw_approval", id=await listed("once"))
        assert taken["withdrawn"] == "once"
        assert code_of(await model.execute("new:report", tag="back")) == "confirmation_required"
        await gated.owner("answer_approval", id=await listed(), answer="once")
        await gated.owner("answer_approval", id=await listed("once"), answer="refuse")
        assert code_of(await model.execute("new:report", tag="back")) == "confirmation_refused"
    async with person(gated.gateway, "auto", who=(judge := Judge("ada", words=["session", "refuse"]))) as (_, model):
        refused = await model.execute("new:report", tag="back")  # by the owner: this client was not asked
        (block,) = refused.content
        assert isinstance(block, types.TextContent)
        assert re.search(r"the owner refused it earlier, and that holds for another 1\d(\.\d)? minutes", block.text)
        assert judge.judged == []
        await gated.owner("withdraw_approval", id=await listed("refuse"))
        assert await model.text("new:report", tag="back")
        assert await model.text("new:report", tag="back, again")
        (session,) = [one for one in (await gated.owner("approvals"))["sessions"] if one["toolKey"] == "new:report"]
        assert (session["token"], 0 < session["leftS"] <= 900) == ("test", True)
        await gated.owner("withdraw_approval", id=session["id"])
        assert code_of(await model.execute("new:report", tag="back")) == "confirmation_refused"
        assert len(judge.judged) == 2
    with pytest.raises(OperationError, match="There is no answer with the id"):
        await gated.owner("withdraw_approval", id=session["id"])


# ------------------------------------------------------------------ the owner answers an open question


async def test_the_owner_may_answer_before_a_legacy_client_does(gated: Gated) -> None:
    async with person(gated.gateway, "legacy", who=(judge := Judge("ada", silent=True))) as (_, model):
        call = asyncio.create_task(model.execute("new:stay", tag="both"))
        pending = await gated.one_pending("new:stay")
        assert (pending["asked"], len(judge.judged)) == (True, 1)
        await gated.owner("answer_approval", id=pending["id"], answer="refuse")
        assert code_of(await call) == "confirmation_refused"
        call = asyncio.create_task(model.execute("new:plain", tag="both"))
        await gated.owner("answer_approval", id=(await gated.one_pending("new:plain", "both"))["id"], answer="once")
        assert not (await call).is_error
    assert ("ok", None, "cli once") in await gated.rows("new:plain")
    assert ("denied", "confirmation_refused", "cli refused") in await gated.rows("new:stay")


def executing(tool_key: str, tag: str, previous: dict[str, Any] | None = None, **answer: Any) -> dict[str, Any]:
    """A call, or its retry with one answer to all questions of `previous`."""
    params: dict[str, Any] = {"name": "tool_execute", "arguments": {"toolKey": tool_key, "arguments": {"tag": tag}}}
    if previous is not None:
        given = {key: {"action": "accept", "content": answer} for key in previous["inputRequests"]} if answer else {}
        params |= {"inputResponses": given, "requestState": previous["requestState"]}
    return params


async def parked(one: Speaker, tool_key: str, tag: str) -> dict[str, Any]:
    asked = await one.result("tools/call", executing(tool_key, tag))
    assert is_gate(asked)
    return asked


def is_gate(result: dict[str, Any]) -> bool:
    """Whether a result is the gate's question and nothing else."""
    assert result["resultType"] == "input_required", result
    questions = [one["params"]["message"] for one in result["inputRequests"].values()]
    return len(questions) == 1 and questions[0].startswith("Run `")


async def test_the_owner_may_answer_before_a_modern_client_comes_back(gated: Gated) -> None:
    async with speaker(gated.gateway, "modern", capabilities=FORM) as one:
        asked = await parked(one, "new:plain", "later")
        await gated.owner("answer_approval", id=(await gated.one_pending("new:plain", "later"))["id"], answer="once")
        done = await one.result("tools/call", executing("new:plain", "later", asked))
        assert done["content"][0]["text"] == "plain later"
    assert gated.ran("later") == 1


# ------------------------------------------------------------------ forgeries


async def test_no_retry_that_a_client_makes_up_passes_the_gate(gated: Gated) -> None:
    yes = {"action": "accept", "content": {"answer": "once"}}
    async with speaker(gated.gateway, "modern", capabilities=FORM) as one:
        made_up = executing("new:plain", "forged") | {"inputResponses": {"q1": yes}}
        assert is_gate(await one.result("tools/call", made_up))
        for state in ("", "x", "v1." + "A" * 80, {"confirmation": "x"}, {"state": None, "confirmation": "x"}):
            forged = await one.message("tools/call", made_up | {"requestState": state})
            assert "error" in forged or is_gate(forged["result"])
        asked = await parked(one, "new:plain", "forged")
        elsewhere = executing("new:plain", "forged-2", asked, answer="once")  # a yes for other arguments
        assert "requestState" in (await one.error("tools/call", elsewhere))["message"]
        other_tool = executing("new:name", "forged", asked, answer="once")
        assert "requestState" in (await one.error("tools/call", other_tool))["message"]
        done = await one.result("tools/call", executing("new:plain", "forged", asked, answer="once"))
        assert done["content"][0]["text"] == "plain forged"
        again = executing("new:plain", "forged", asked, answer="once")  # the same yes once more
        assert "requestState" in (await one.error("tools/call", again))["message"]
    assert (gated.ran("forged"), gated.ran("forged-2")) == (1, 0)


async def test_a_yes_is_carried_through_the_rounds_of_a_server_once(gated: Gated) -> None:
    """A modern server's questions come back as calls: each goes on with the yes, and none can be played again."""
    async with speaker(gated.gateway, "modern", capabilities=FORM) as one:
        asked = await parked(one, "new:name", "round")
        server_asks = await one.result("tools/call", executing("new:name", "round", asked, answer="once"))
        assert not is_gate(server_asks)
        assert "pointsmanConfirmation" not in server_asks
        answering = executing("new:name", "round", server_asks, name="ada")
        assert (await one.result("tools/call", answering))["content"][0]["text"] == "ada"
        assert gated.ran("round") == 2
        assert is_gate(await one.result("tools/call", answering))
        assert gated.ran("round") == 2
        async with speaker(gated.gateway, "modern", capabilities={}) as deaf:
            refused = await deaf.result("tools/call", answering)
            assert refused["structuredContent"]["error"]["code"] == "confirmation_required"
    assert gated.ran("round") == 2
    assert ("ok", None, "earlier round") in await gated.rows("new:name")


# ------------------------------------------------------------------ what goes wrong


async def test_a_megabyte_of_arguments_is_asked_in_a_few_kilobytes(gated: Gated) -> None:
    huge = {"text": "x" * 1_000_000, "tag": "huge", "path": "/etc/\u202eshadow\x1b[2J"}
    params = {"name": "tool_execute", "arguments": {"toolKey": "old:plain", "arguments": huge}}
    async with speaker(gated.gateway, "modern", capabilities=FORM) as one:
        (question,) = (await one.result("tools/call", params))["inputRequests"].values()
        pending = await gated.one_pending("old:plain", "huge")
    message = question["params"]["message"]
    assert pending["arguments"] in message  # the owner sees what the client is asked
    assert len(message) < 8_000
    assert "1,000,000 characters" in message
    assert r"/etc/\u202eshadow\u001b[2J" in message
    assert gated.ran("huge") == 0


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_killed_gateway_runs_nothing_and_neither_does_its_successor(era: Era, tmp_path: Path) -> None:
    config = {
        "unassigned": {"confirm": "destructive"},
        "servers": {"old": stdio_asker("legacy", tmp_path / "trace")},
    }
    async with gateway_process(tmp_path, config) as gateway:
        assert not SqliteKeyValues(gateway.state_dir).list("confirm/")  # no call has needed a yes
        call: asyncio.Task[Any] = asyncio.create_task(_silent(gateway) if era == "legacy" else _parked(gateway))
        open_one = await Gated(gateway, tmp_path).one_pending("old:plain")
        if era == "modern":
            await call
        await gateway.stop(signal.SIGKILL)
        asked: Any = (await asyncio.gather(call, return_exceptions=True))[0]
    async with gateway_process(tmp_path, config, token=gateway.token) as gateway:
        gated = Gated(gateway, tmp_path)
        with pytest.raises(OperationError, match="does not wait any more"):
            await gated.owner("answer_approval", id=open_one["id"], answer="once")
        async with speaker(gateway, "modern", capabilities=FORM) as one:
            if isinstance(asked, dict):
                lost = await one.error("tools/call", executing("old:plain", "killed", asked, answer="once"))
                assert "requestState" in lost["message"]
            again = await parked(one, "old:plain", "killed")
            assert gated.ran("killed") == 0
            await one.result("tools/call", executing("old:plain", "killed", again, answer="once"))
        assert gated.ran("killed") == 1


async def _parked(gateway: GatewayProcess) -> dict[str, Any]:
    async with speaker(gateway, "modern", capabilities=FORM) as one:
        return await parked(one, "old:plain", "killed")


async def _silent(gateway: GatewayProcess) -> None:
    async with person(gateway, "legacy", who=Judge("ada", silent=True)) as (_, model):
        await model.execute("old:plain", tag="killed")


async def test_a_question_times_out_and_a_lost_store_refuses(tmp_path: Path) -> None:
    config = {
        "servers": {"old": stdio_asker("legacy", tmp_path / "trace", confirm=["old:pl*"])},
        "limits": {"parked_s": 0.5},
    }
    async with gateway_process(tmp_path, config) as gateway:
        gated = Gated(gateway, tmp_path)
        async with person(gateway, "legacy", who=Judge("ada", silent=True)) as (_, model):
            assert code_of(await model.execute("old:plain", tag="slow")) == "confirmation_required"
        async with speaker(gateway, "modern", capabilities=FORM) as one:
            asked = await parked(one, "old:plain", "slow")
            while await gated.pending("old:plain"):
                await asyncio.sleep(0.02)
            await asyncio.sleep(0.6)
            late = await one.message("tools/call", executing("old:plain", "slow", asked, answer="once"))
            assert "error" in late or late["result"]["isError"], late
        assert gated.ran("slow") == 0
        assert await gated.rows("old:plain") == [
            ("denied", "confirmation_required", "timeout"),
            ("input_required", None, None),
            ("denied", "confirmation_required", "timeout"),
        ]
    async with gateway_process(tmp_path, config, token=gateway.token) as gateway:
        for file in gateway.state_dir.glob("values.db*"):
            file.unlink()
        (gateway.state_dir / "values.db").mkdir()
        for able in (True, False):
            async with person(gateway, "auto", able=able, who=Judge("ada", words=["once"])) as (_, model):
                assert code_of(await model.execute("old:plain", tag="slow")) == "confirmation_required"
                assert not (await model.execute("old:report", tag="other")).is_error  # needs no yes
        assert Gated(gateway, tmp_path).ran("slow") == 0
        assert "cannot be used" in gateway.stderr


async def test_a_call_whose_tool_is_taken_away_meanwhile_does_not_run(tmp_path: Path) -> None:
    server = stdio_asker("legacy", tmp_path / "trace", confirm="writes")
    async with gateway_process(tmp_path, {"servers": {"old": server}}) as gateway:
        gated = Gated(gateway, tmp_path)
        async with speaker(gateway, "modern", capabilities=FORM) as one:
            asked = await parked(one, "old:plain", "taken")
            gateway.write_config({"servers": {"old": server | {"tool_permissions": {"plain": False}}}})
            await gated.owner("reload")
            answered = await one.result("tools/call", executing("old:plain", "taken", asked, answer="once"))
            assert answered["structuredContent"]["error"]["code"] == "unknown_tool"
        assert gated.ran("taken") == 0
        async with speaker(gateway, "modern") as deaf:
            for tool_key in ("old:report", "old:name"):
                await deaf.result("tools/call", executing(tool_key, "gone"))
        always = await gated.one_pending("old:report")
        await gated.owner("answer_approval", id=always["id"], answer="always")
        await gated.one_pending("old:name")
        gateway.write_config({"servers": {}})
        await gated.owner("reload")
        listed = await gated.owner("approvals")
        assert (listed["pending"], [one["inEffect"] for one in listed["always"]]) == ([], [False])


async def test_one_token_cannot_fill_the_list(tmp_path: Path) -> None:
    server = stdio_asker("legacy", tmp_path / "trace", confirm="writes")
    async with gateway_process(tmp_path, {"servers": {"old": server}}) as gateway:
        gated = Gated(gateway, tmp_path)
        async with speaker(gateway, "modern") as one:
            answers = [await one.result("tools/call", executing("old:plain", f"n{number}")) for number in range(52)]
        texts = [answer["structuredContent"]["error"]["message"] for answer in answers]
        assert sum("too many calls of this token" in text for text in texts) == 2
        assert len(await gated.pending("old:plain")) == 50


async def test_the_owners_own_call_is_its_yes(gated: Gated) -> None:
    called = await gated.owner("call", tool="old:plain", arguments={"tag": "own"})
    assert called["content"][0]["text"] == "plain own"


async def test_the_command_lists_and_answers(gated: Gated) -> None:
    async def command(*words: str) -> tuple[int | None, str]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "pointsman", "approve", *words),
            *("--state-dir", str(gated.gateway.state_dir)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        printed, _ = await process.communicate()
        return process.returncode, printed.decode()

    async with person(gated.gateway, "auto", able=False) as (_, model):
        await model.execute("new:places", tag="cmd\u202e")
        pending = await gated.one_pending("new:places")
        code, text = await command()
        assert code == 0
        assert "new:places" in text
        assert r'"tag": "cmd\u202e"' in text
        assert (await command("nothing"))[0] == 2
        assert (await command(pending["id"], "--always", "--refuse"))[0] == 2
        code, text = await command(pending["id"], "--refuse")
        assert (code, text) == (0, "Refused: new:places by test.\n")
        assert code_of(await model.execute("new:places", tag="cmd\u202e")) == "confirmation_refused"
