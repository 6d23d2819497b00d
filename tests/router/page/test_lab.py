"""The discovery lab: what any caller would get, what is left out and why, and kept queries."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pointsman.router.owner.client import ask
from pointsman.router.owner.search.kept_cases import USUAL_FILE, read_kept
from tests.router.conftest import audit_rows
from tests.router.page.browser import Screens
from tests.router.page.office import office
from tests.router.page.owner import HOSTILE, Owner, running_page
from tests.servers.search_service import TOKEN, names_the_first_tool, search_service


@pytest.fixture(scope="module")
async def owner(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Owner]:
    folder = tmp_path_factory.mktemp("lab")
    async with running_page(folder, office(folder)) as signed_in:
        yield signed_in


async def searched(owner: Owner, **fields: str) -> str:
    answer = await owner.post("/page/lab", fields)
    assert answer.status_code == 200, answer.text
    return html.unescape(re.sub(r"\s+", " ", answer.text.partition("<main")[2]))


def left_out(text: str) -> dict[tuple[str, str], str]:
    """The number of tools by reason and server."""
    found: dict[tuple[str, str], str] = {}
    for group in text.partition("What was left out")[2].split('scope="rowgroup">')[1:]:
        reason = re.sub(r"</?code>", "", group.partition("</th>")[0])
        rows = re.findall(r'"Server"><code>(.*?)</code></td><td data-label="Tools" class="num">(.*?)</td>', group)
        found |= {(reason, server): count for server, count in rows}
    return found


async def test_a_search_shows_what_the_model_gets(owner: Owner) -> None:
    text = await searched(owner, queries="read a text file", expected="files:read_file")
    assert "`files:read_file` is number 1" in text.replace("<code>", "`").replace("</code>", "`")
    assert "read, text, file" in text or "read" in text
    assert '"toolKey": "files:read_file"' in text
    asked = await asyncio.to_thread(ask, owner.gateway.state_dir, "search", queries=["read a text file"])
    keys = [one["toolKey"] for one in asked["structuredContent"]["results"]]
    assert re.findall(r'"toolKey": "(.*?)"', text) == keys


async def test_says_what_was_left_out_and_why(owner: Owner) -> None:
    text = await searched(owner, queries="read a text file", token="laptop", most="1")
    reasons = left_out(text)
    assert reasons["The server is not ready", "gone"] == "not known"
    assert "there is no such program" in text
    assert reasons["Switched off by tool_permissions", "files"] == "1"
    assert reasons["The server is switched off", "off"] == "not known"
    assert reasons["The server does not belong to this project", "mail"] == "2"
    assert reasons["Found, but below the cut", "files"] == "2"
    text = await searched(owner, queries="send an email", token="mailer", project="research")
    assert left_out(text)["The token does not name the server", "files"] == "4"
    text = await searched(owner, queries="send an email", token="mailer", project="quiet")
    assert left_out(text)["The token does not include this project", "mail"] == "2"
    assert "is refused" in text
    text = await searched(owner, queries="send an email", token="old")
    assert left_out(text)["The token has expired", "files"] == "4"
    text = await searched(owner, queries="send an email", token="laptop", project="quiet")
    assert left_out(text)["Discovery is switched off for this project", "mail"] == "2"
    assert "Tool discovery is switched off" in text


async def test_scopes_and_patterns_are_reasons(owner: Owner) -> None:
    scope = "Outside the token's scopes; without trust_annotations, a server has only destructive tools"
    text = await searched(owner, queries="read a text file", token="reader")
    assert left_out(text)[scope, "files"] == "4"
    text = await searched(owner, queries="send an email", token="reader", project="research")
    assert left_out(text)[scope, "mail"] == "1"
    assert re.findall(r'"toolKey": "(.*?)"', text) == ["mail:search_email"]
    text = await searched(owner, queries="read a text file", token="picky")
    assert left_out(text)["Left out by tools of the token", "files"] == "1"


@pytest.mark.parametrize(
    ("expected", "sentence"),
    [
        ("files:delete_file", "Switched off by"),
        ("files:write_file", "Found, but below the cut. It is number"),
        ("mail:send_email", "does not belong to this project"),
        ("nowhere:x", "is not known"),
        (HOSTILE, "is not known"),
    ],
)
async def test_says_what_became_of_the_expected_tool(owner: Owner, expected: str, sentence: str) -> None:
    answer = await owner.post(
        "/page/lab", {"queries": "read a file", "token": "laptop", "most": "1", "expected": expected}
    )
    assert "<img" not in answer.text
    assert sentence in re.sub(r"</?code>", "", html.unescape(answer.text))


async def test_a_search_is_in_the_audit_as_the_owners_and_teaches_nothing(owner: Owner) -> None:
    before = await audit_rows(owner.gateway.state_dir)
    figures = (await asyncio.to_thread(ask, owner.gateway.state_dir, "status"))["context"]["discoveries"]
    await searched(owner, queries="send an email\nread mail", token="mailer", project="research", compare="yes")
    [row] = (await audit_rows(owner.gateway.state_dir))[len(before) :]
    assert (row["kind"], row["token"], row["project"], row["client"]) == ("discovery", "@owner", "research", "page")
    assert (row["method"], row["code"], row["outcome"]) == ("lab/search", "tokens.mailer", "ok")
    assert row["queries"] == ["send an email", "read mail"]
    assert (await asyncio.to_thread(ask, owner.gateway.state_dir, "status"))["context"]["discoveries"] == figures
    assert not [row for row in await audit_rows(owner.gateway.state_dir) if row["token"] == "mailer"]


async def test_compares_the_searches_and_names_the_queries_that_a_tool_serves(owner: Owner) -> None:
    text = await searched(owner, queries="send an email\nread a file", project="research", compare="yes")
    assert "Side by side" in text
    assert '<th class="num">bm25 ' in text
    assert '<th class="num">bm25+static ' in text
    assert "cloud" not in text.partition("Side by side")[2].partition("</section>")[0]
    assert '<td data-label="Serves" class="nowrap">query[0]</td>' in text
    other = await searched(owner, queries="send an email", project="research", search="bm25")
    assert re.search(r'<td data-label="By meaning" class="num">[^0-9]</td>', other)
    assert "%</td>" in text


@pytest.mark.parametrize(
    "fields",
    [
        {"queries": ""},
        {"queries": " \n "},
        {"queries": "x\n" * 51},
        {"queries": "x", "most": "0"},
        {"queries": "x", "most": "101"},
        {"queries": "x", "most": "many"},
        {"queries": "x", "token": "nobody"},
        {"queries": "x", "project": "nowhere"},
        {"queries": "x", "search": "cloud"},
        {"queries": "x", "search": "nothing"},
        {"queries": "${HOME}"},
    ],
)
async def test_errors_are_named_and_record_nothing(owner: Owner, fields: dict[str, str]) -> None:
    before = len(await audit_rows(owner.gateway.state_dir))
    answer = await owner.post("/page/lab", fields)
    assert answer.status_code == 400
    assert len(await audit_rows(owner.gateway.state_dir)) == before


async def test_an_address_fills_the_form_and_does_not_search(owner: Owner) -> None:
    before = len(await audit_rows(owner.gateway.state_dir))
    text = (await owner.get("/page/lab?queries=%3Cb%3E%0Atwo&token=laptop&expected=%22x")).text
    assert "&lt;b&gt;\ntwo</textarea>" in text
    assert "<option selected>laptop</option>" in text
    assert "What the model gets" not in text
    assert len(await audit_rows(owner.gateway.state_dir)) == before


async def test_hostile_texts_are_text(owner: Owner) -> None:
    answer = await owner.post("/page/lab", {"queries": f"{HOSTILE} alert poke", "most": "100", "context": HOSTILE})
    for text in ("<img", "<script>alert", "\x1b", "\u202e", "}}49"):
        assert text not in answer.text
    assert "&lt;img src=x" in answer.text


async def test_queries_are_kept_and_ranked_again(tmp_path: Path) -> None:
    async with running_page(tmp_path, office(tmp_path)) as owner:
        assert "Nothing is kept yet" in (await owner.get("/page/lab/kept")).text
        keep = {"queries": "read a text file", "expected": "files:read_file", "worst": "1"}
        done = await owner.post("/page/lab/keep", keep)
        assert (done.status_code, done.headers["location"]) == (303, "/page/lab/kept?page=1")
        assert "entry 1 of" in await owner.flash()
        assert (await owner.post("/page/lab/keep", keep)).status_code == 409  # it is there
        await owner.post(
            "/page/lab/keep", {**keep, "queries": f"{HOSTILE}\nsecond", "context": "c", "project": "research"}
        )
        await owner.post("/page/lab/keep", {**keep, "queries": "paint it", "expected": "shop:nothing"})
        cases = read_kept(tmp_path / USUAL_FILE)
        assert [case.queries for case in cases] == [["read a text file"], [HOSTILE, "second"], ["paint it"]]
        assert ("page", "lab/keep", USUAL_FILE) in await owner.changes()
        listed = (await owner.get("/page/lab/kept")).text
        assert "3 queries" in listed
        assert "<img" not in listed
        rows = len(await audit_rows(owner.gateway.state_dir))
        ranked = (await owner.post("/page/lab/kept")).text
        assert "2 missed" in ranked
        assert '<td data-label="Rank now" class="num">1</td>' in ranked
        assert len(await audit_rows(owner.gateway.state_dir)) == rows
        (tmp_path / USUAL_FILE).write_text("cases: none\n")
        broken = await owner.get("/page/lab/kept")
        assert "must be a list of entries" in broken.text
        assert (await owner.post("/page/lab/keep", keep)).status_code == 409


@pytest.mark.parametrize(
    "fields",
    [
        {"expected": "no-colon"},
        {"worst": "0"},
        {"worst": "x"},
        {"queries": ""},
        {"project": "nowhere"},
    ],
)
async def test_what_cannot_be_kept_is_not(owner: Owner, fields: dict[str, str]) -> None:
    good = {"queries": "x", "expected": "a:b", "worst": "1"}
    assert (await owner.post("/page/lab/keep", {**good, **fields})).status_code in (404, 409)
    assert not (owner.gateway.config_file.with_name(USUAL_FILE)).exists()


async def search_in_browser(page: Any) -> None:
    await page.fill("#queries", "send an email to a colleague\nread the notes")
    await page.select_option("#project", "research")
    await page.fill("#expected", "mail:send_email")
    await page.check("input[name=compare]")
    await page.click("button.primary")
    await page.wait_for_selector("#got-title")


@pytest.mark.browser
async def test_looks_right_in_a_browser(screens: Screens) -> None:
    await screens.check("lab", "/page/lab")
    await screens.check("lab-found", "/page/lab", search_in_browser)


@pytest.mark.browser
async def test_keeps_and_ranks_in_a_browser(screens: Screens) -> None:
    async with screens.page() as page:
        await page.goto(screens.owner.gateway.base_url + "/page/lab")
        await search_in_browser(page)
        await page.click("text=Keep >> nth=-1")
        await page.wait_for_selector("text=Rank them now")

    async def rank(page: Any) -> None:
        await page.click("text=Rank them now")
        await page.wait_for_selector("text=found")

    try:
        await screens.check("kept", "/page/lab/kept", rank)
    finally:
        screens.owner.gateway.config_file.with_name(USUAL_FILE).unlink()


def with_cloud(folder: Path, url: str) -> dict[str, Any]:
    config = office(folder)
    config["projects"]["research"] = {"optimization": "cloud"}
    return {**config, "cloud_search": {"url": url, "token": TOKEN, "timeout_s": 20}}


async def test_a_search_service_is_asked_once_and_compared(tmp_path: Path) -> None:
    async with (
        search_service(names_the_first_tool) as service,
        running_page(tmp_path, with_cloud(tmp_path, service.url)) as owner,
    ):
        before = len(service.asked)
        text = await searched(owner, queries="send an email", project="research")
        assert len(service.asked) == before + 1
        assert "<dd>cloud<small>the search in use</small>" in text
        text = await searched(owner, queries="send an email", project="research", compare="yes")
        assert '<th class="num">cloud ' in text
        assert len(service.asked) == before + 3


async def test_a_search_service_that_does_not_answer_is_said(tmp_path: Path) -> None:
    async with running_page(tmp_path, with_cloud(tmp_path, "http://127.0.0.1:9")) as owner:
        text = await searched(owner, queries="send an email", project="research", compare="yes")
        assert "the search service did not answer" in text
        assert "The local search answered, because the search service" in text
        assert "mail:send_email" in text
        chosen = await searched(owner, queries="send an email", project="research", search="cloud")
        assert "The local search answered" in chosen
