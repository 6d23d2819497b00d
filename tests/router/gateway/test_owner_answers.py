"""The owner's answers: to calls whose client cannot be asked, and to questions that a client has."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from mcp import types

from pointsman.router.owner.client import OperationError
from tests.e2e.client import BOTH_ERAS, Assistant, Mode
from tests.e2e.people import person
from tests.gateway_process import gateway_process
from tests.router.conftest import audit_rows
from tests.router.gateway.gated import FORM, Gated, Judge, code_of, config_of, executing, parked
from tests.router.raw_client import speaker


@pytest.fixture(scope="module")
async def gated(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gated]:
    folder = tmp_path_factory.mktemp("gated")
    async with gateway_process(folder, config_of(folder)) as gateway:
        yield Gated(gateway, folder)


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
            await gated.owner("answer_approval", id=named[1], answer="refuse")
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
        (standing,) = [one for one in (await gated.owner("approvals"))["always"] if one["toolKey"] == "kept:wipe"]
        assert standing["inEffect"] is False
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


async def _deferred(gated: Gated, model: Assistant, tag: str, answer: str | None) -> str:
    """Have a call of `kept:refusable` listed and answered; its id."""
    assert code_of(await model.execute("kept:refusable", tag=tag)) == "confirmation_required"
    approval = str((await gated.one_pending("kept:refusable", f'"{tag}"'))["id"])
    if answer is not None:
        await gated.owner("answer_approval", id=approval, answer=answer)
    return approval


async def test_an_answer_says_which_one_it_replaces(gated: Gated) -> None:
    async with person(gated.gateway, "auto", able=False) as (_, model):
        approval = await _deferred(gated, model, "replaced", "refuse")
        said = await gated.owner("answer_approval", id=approval, answer="once")
        assert re.search(r"This replaces a refusal, given by `pointsman approve` \d+ s ago\.", said["note"])
        said = await gated.owner("answer_approval", id=approval, answer="refuse")
        assert re.search(
            r"This replaces an unused yes for once, given by `pointsman approve` \d+ s ago\.", said["note"]
        )
        assert code_of(await model.execute("kept:refusable", tag="replaced")) == "confirmation_refused"


async def test_of_two_answers_at_once_the_second_is_told_what_holds(gated: Gated) -> None:
    """Each answer is sent before either is known: one is taken, and the other replaces it knowingly or is refused."""
    async with person(gated.gateway, "auto", able=False) as (_, model):
        approval = await _deferred(gated, model, "at once", None)
        answers = [gated.owner("answer_approval", id=approval, answer=word) for word in ("refuse", "once")]
        said = await asyncio.gather(*answers, return_exceptions=True)
    for one in said:
        assert isinstance(one, dict) or "Your answer was not taken: the call" in str(one)
    taken = [one for one in said if isinstance(one, dict)]
    assert sum("This replaces" not in one["note"] for one in taken) == 1


async def test_the_owners_no_to_a_call_is_stronger_than_always_and_its_newest_word_holds(gated: Gated) -> None:
    async with person(gated.gateway, "auto", able=False) as (_, model):
        before = await _deferred(gated, model, "before", "refuse")
        after = await _deferred(gated, model, "after", None)
        await _deferred(gated, model, "other", "always")
        told = {one["id"]: one["always"] for one in (await gated.owner("approvals"))["pending"]}
        assert told[after] is True  # it runs when it is repeated
        assert await model.text("kept:refusable", tag="anything") == "k"
        assert code_of(await model.execute("kept:refusable", tag="before")) == "confirmation_refused"
        await gated.owner("answer_approval", id=after, answer="refuse")
        assert code_of(await model.execute("kept:refusable", tag="after")) == "confirmation_refused"
        await gated.owner("answer_approval", id=before, answer="once")
        assert await model.text("kept:refusable", tag="before") == "k"
        await gated.owner("answer_approval", id=after, answer="always")
        assert await model.text("kept:refusable", tag="after") == "k"
    for one in (await gated.owner("approvals"))["always"]:
        if one["toolKey"] == "kept:refusable":
            await gated.owner("withdraw_approval", id=one["id"])


@pytest.mark.parametrize("mode", BOTH_ERAS)
async def test_a_clients_yes_for_the_session_never_outvotes_the_owners_no(mode: Mode, gated: Gated) -> None:
    tag = f"no-{mode}"
    async with person(gated.gateway, "auto", able=False) as (_, model):
        await _deferred(gated, model, tag, "refuse")
    judge = Judge("ada", words=["session"])
    async with person(gated.gateway, mode, who=judge) as (_, model):
        assert await model.text("kept:refusable", tag=f"{tag}, other") == "k"
        assert await model.text("kept:refusable", tag=f"{tag}, third") == "k"
        assert code_of(await model.execute("kept:refusable", tag=tag)) == "confirmation_refused"
    assert len(judge.judged) == 1
    for one in (await gated.owner("approvals"))["sessions"]:
        if one["toolKey"] == "kept:refusable":
            await gated.owner("withdraw_approval", id=one["id"])


async def test_a_yes_to_a_tool_that_has_changed_since_is_said_to_have_no_effect(gated: Gated) -> None:
    async def listed(tag: str) -> dict[str, Any]:
        (one,) = [one for one in (await gated.owner("approvals"))["pending"] if f'"{tag}"' in one["arguments"]]
        return dict(one)

    async with (
        person(gated.gateway, "auto", able=False) as (_, model),
        speaker(gated.gateway, "modern", capabilities=FORM) as one,
    ):
        for tag in ("yes-before", "yes-after", "no-after"):
            assert code_of(await model.execute("pinned:wipe", tag=tag)) == "confirmation_required"
        before = await gated.owner("answer_approval", id=(await listed("yes-before"))["id"], answer="once")
        assert (before["changed"], before["asked"]) == (None, False)
        asked = await parked(one, "pinned:wipe", "asked")
        file = gated.folder / "pinned.json"
        file.write_text(file.read_text().replace('{"name": "wipe"', '{"name": "wipe", "description": "Wipes more"'))
        assert await model.text("pinned:announce") == "p"
        async with asyncio.timeout(20):
            while (await listed("yes-before"))["changed"] is None:
                await model.execute("pinned:wipe", tag="again")
        assert (await listed("yes-before"))["changed"] == "held"
        after = await gated.owner("answer_approval", id=(await listed("yes-after"))["id"], answer="always")
        assert after["changed"] == "held"
        assert "no effect" in after["note"]
        assert "waits for `pointsman pin approve pinned:wipe`" in after["note"]
        (standing,) = [each for each in (await gated.owner("approvals"))["always"] if each["toolKey"] == "pinned:wipe"]
        assert standing["inEffect"] is False
        late = await one.result("tools/call", executing("pinned:wipe", "asked", asked, answer="once"))
    assert "its definition of this tool has changed and waits for the operator's approval" in late["content"][0]["text"]


# ------------------------------------------------------------------ the owner answers an open question


async def test_the_owner_may_answer_before_a_legacy_client_does(gated: Gated) -> None:
    async with person(gated.gateway, "legacy", who=(judge := Judge("ada", silent=True))) as (_, model):
        call = asyncio.create_task(model.execute("new:stay", tag="both"))
        pending = await gated.one_pending("new:stay")
        assert (pending["asked"], len(judge.judged)) == (True, 1)
        await gated.owner("answer_approval", id=pending["id"], answer="refuse")
        assert code_of(await call) == "confirmation_refused"
        assert code_of(await model.execute("new:stay", tag="both")) == "confirmation_refused"
        assert len(judge.judged) == 1  # the owner's no holds for the same call, so the client is not asked
        call = asyncio.create_task(model.execute("new:plain", tag="both"))
        await gated.owner("answer_approval", id=(await gated.one_pending("new:plain", "both"))["id"], answer="once")
        assert not (await call).is_error
    assert ("ok", None, "cli once") in await gated.rows("new:plain")
    assert ("denied", "confirmation_refused", "cli refused") in await gated.rows("new:stay")


async def _silence() -> dict[str, Any]:
    await asyncio.Event().wait()
    return {}


@pytest.mark.parametrize("word", ["once", "always"])
async def test_the_owners_yes_does_not_run_a_call_whose_legacy_client_has_left(word: str, gated: Gated) -> None:
    tag = f"left-{word}"
    async with speaker(gated.gateway, "legacy", capabilities=FORM) as one:
        call = asyncio.create_task(one.answering("tools/call", executing("old:places", tag), _silence))
        pending = await gated.one_pending("old:places", tag)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    with pytest.raises(OperationError, match=r"Nothing was run: the client of `test` left") as told:
        await gated.owner("answer_approval", id=pending["id"], answer=word)
    assert ("for always holds" in str(told.value)) == (word == "always")
    for standing in (await gated.owner("approvals"))["always"]:
        if standing["toolKey"] == "old:places":
            await gated.owner("withdraw_approval", id=standing["id"])
    assert await gated.pending("old:places", tag) == []
    assert gated.ran(tag) == 0
    assert ("denied", "confirmation_required", "client gone") in await gated.rows("old:places")


async def test_the_owner_may_answer_before_a_modern_client_comes_back(gated: Gated) -> None:
    async with speaker(gated.gateway, "modern", capabilities=FORM) as one:
        asked = await parked(one, "new:plain", "later")
        await gated.owner("answer_approval", id=(await gated.one_pending("new:plain", "later"))["id"], answer="once")
        done = await one.result("tools/call", executing("new:plain", "later", asked))
        assert done["content"][0]["text"] == "plain later"
    assert gated.ran("later") == 1


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
        waiting = (await gated.owner("status"))["waiting"]
        assert waiting["calls"] >= 1
        code, text = await command()
        assert code == 0
        assert "new:places" in text
        assert r'"tag": "cmd\u202e"' in text
        assert (await command("nothing"))[0] == 2
        assert (await command(pending["id"], "--always", "--refuse"))[0] == 2
        await model.execute("new:places", tag="a" * 2_000 + "middle" + "b" * 2_000)
        long = (await gated.one_pending("new:places", "aaa"))["id"]
        assert "middle" not in (await command())[1]
        code, text = await command(long, "--show")
        assert (code, "aamiddlebb" in text, "shortened" in text) == (0, True, False)
        await gated.owner("answer_approval", id=long, answer="refuse")
        assert re.search(rf"{long}  answered \(refuse\).*\n  arguments  .*\n +\"tag\": \"aaa", (await command())[1])
        assert "aamiddlebb" in json.loads((await command(long, "--show", "--json"))[1])["arguments"]
        code, text = await command(pending["id"], "--refuse")
        assert (code, text) == (0, "Refused: new:places by test.\n")
        assert code_of(await model.execute("new:places", tag="cmd\u202e")) == "confirmation_refused"
