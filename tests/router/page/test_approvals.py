"""The screen of approvals: what waits, the owner's answers, and text that is foreign."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.router.conftest import from_file
from tests.router.page.browser import Screens
from tests.router.page.owner import HOSTILE, Owner, running_page
from tests.router.raw_client import speaker

PATH = "/page/approvals"


def config(folder: Path) -> dict[str, Any]:
    schema = {"type": "object"}
    tools = [{"name": "wipe", "inputSchema": schema}, {"name": f"x{HOSTILE}", "inputSchema": schema}]
    server = from_file(folder / "tools.json", "t", {"tools": tools}, name=HOSTILE, confirm="destructive")
    return {"servers": {"s": server}}


@pytest.fixture(scope="module")
async def owner(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Owner]:
    folder = tmp_path_factory.mktemp("page")
    async with running_page(folder, config(folder)) as signed_in:
        yield signed_in


async def call(owner: Owner, tool_key: str, **arguments: Any) -> str:
    """`ok`, or the code of the error. The client cannot be asked."""
    async with speaker(owner.gateway, "modern") as one:
        result = await one.call("tool_execute", {"toolKey": tool_key, "arguments": arguments})
    return str(result["structuredContent"]["error"]["code"]) if result.get("isError") else "ok"


async def waiting(owner: Owner, text: str) -> str:
    """The path that answers the call whose article has this text."""
    page = (await owner.get(PATH)).text
    (article,) = (part for part in page.split("<article")[1:] if text in html.unescape(part))
    found = re.search(r'action="(/page/approvals/\w+)"', article)
    assert found is not None
    return found[1]


async def test_the_screen_says_first_that_it_is_off_by_default(owner: Owner) -> None:
    page = (await owner.get(PATH)).text
    assert page.index("Off by default") < page.index("Calls that wait")


async def test_yes_once_refuse_always_and_withdraw(owner: Owner) -> None:
    assert await call(owner, "s:wipe", n=1) == "confirmation_required"
    done = await owner.post(await waiting(owner, '"n": 1'), {"answer": "once"})
    assert (done.status_code, done.headers["location"]) == (303, PATH)
    assert "Its client may now repeat the call" in await owner.flash()
    assert [await call(owner, "s:wipe", n=1) for _ in range(2)] == ["ok", "confirmation_required"]
    await owner.post(await waiting(owner, '"n": 1'), {"answer": "refuse"})
    assert await call(owner, "s:wipe", n=1) == "confirmation_refused"
    assert await call(owner, "s:wipe", n=2) == "confirmation_required"
    await owner.post(await waiting(owner, '"n": 2'), {"answer": "always"})
    assert [await call(owner, "s:wipe", n=number) for number in (2, 3)] == ["ok", "ok"]
    found = re.findall(r'action="(/page/approvals/\w+/withdraw)"', (await owner.get(PATH)).text)
    assert len(found) == 2  # the refusal, and the yes for always
    assert [(await owner.post(path)).status_code for path in found] == [303, 303]
    assert [await call(owner, "s:wipe", n=number) for number in (1, 2, 4)] == ["confirmation_required"] * 3
    said = [one for one in await owner.changes() if one[1].startswith("approval/")]
    kinds = ("once", "refuse", "always", "withdraw", "withdraw")
    assert sorted(said) == sorted(("page", f"approval/{kind}", "tokens.test") for kind in kinds)


async def test_the_ids_of_calls_and_all_of_their_arguments_can_be_seen(owner: Owner) -> None:
    text = "a" * 4_000 + HOSTILE + "b" * 4_000
    assert await call(owner, "s:wipe", long=text) == "confirmation_required"
    path = await waiting(owner, "8,0")
    page = (await owner.get(PATH)).text
    assert f'<small class="muted">{path.rpartition("/")[2]}</small>' in page
    assert "a" * 4_000 not in page
    whole = (await owner.get(f"{path}/arguments")).text
    assert HOSTILE not in whole
    count = page.count("<article")
    assert f'<span class="badge warn">{count}<span class="sr"> waiting</span></span>' in page
    assert re.search(rf'<a href="/page/approvals">{count} calls?</a> waits? for your yes', (await owner.get("/")).text)
    assert f'"long": "{text}"' in html.unescape(whole)
    assert (await owner.get(f"{PATH}/nothing/arguments")).status_code == 404


async def test_a_form_of_another_site_or_without_an_answer_answers_nothing(owner: Owner) -> None:
    assert await call(owner, "s:wipe", form=1) == "confirmation_required"
    path = await waiting(owner, '"form": 1')
    assert (await owner.post(path, {"answer": "once"}, Origin="https://elsewhere.test")).status_code == 403
    assert (await owner.post(path, {"answer": "once", "csrf": "made up"})).status_code == 403
    assert (await owner.get(path)).status_code == 405
    for answer in ("", "session", "yes"):
        assert (await owner.post(path, {"answer": answer})).status_code == 409
    assert (await owner.post(f"{PATH}/nothing", {"answer": "once"})).status_code == 404
    assert await call(owner, "s:wipe", form=1) == "confirmation_required"


async def test_foreign_text_is_only_ever_text(owner: Owner) -> None:
    assert await call(owner, f"s:x{HOSTILE}", text=HOSTILE) == "confirmation_required"
    page = (await owner.get(PATH)).text
    assert HOSTILE not in page
    assert html.escape(HOSTILE, quote=False) in html.unescape(page).replace("<", "&lt;").replace(">", "&gt;")
    assert "49" not in re.findall(r"onerror=alert\(1\)&gt;(\d*)", page)


@pytest.mark.browser
async def test_the_screen_in_a_browser(owner: Owner, screens: Screens) -> None:
    await call(owner, "s:wipe", seen="in a browser")
    await screens.check("approvals", PATH)
