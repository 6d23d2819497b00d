"""The gate: a call that needs a yes runs with one and never without, in both eras and whatever ends meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from mcp import types

from tests.e2e.client import BOTH_ERAS, Mode
from tests.e2e.people import person
from tests.e2e.test_eras import stdio_asker
from tests.gateway_process import gateway_process
from tests.router.gateway.gated import FORM, SERVERS, Gated, Judge, code_of, config_of, executing, is_gate, parked
from tests.router.raw_client import Era, speaker


@pytest.fixture(scope="module")
async def gated(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gated]:
    folder = tmp_path_factory.mktemp("gated")
    async with gateway_process(folder, config_of(folder)) as gateway:
        yield Gated(gateway, folder)


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
        await Gated(gateway, tmp_path).owner("servers")  # the tools are listed, and known to be approved
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
