"""Who gets in: links, cookies, names of the machine, proxies, and forms of other pages."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import httpx2
import pytest

from pointsman.router.owner.client import ask
from tests.gateway_process import gateway_process
from tests.router.conftest import audit_rows
from tests.router.page.browser import Screens
from tests.router.page.owner import Owner, command, owner_of, running_page


async def test_without_a_cookie_nothing_is_said_about_servers(owner: Owner) -> None:
    async with httpx2.AsyncClient() as stranger:
        start = await stranger.get(owner.gateway.base_url + "/")
        assert start.status_code == 200
        assert f"{owner.gateway.base_url}/mcp" in start.text
        assert "pointsman open" in start.text
        assert "shop" not in start.text.lower().replace("workshop", "")
        assert "Workshop" not in start.text
        inside = await stranger.get(owner.gateway.base_url + "/page/servers")
        assert inside.status_code == 401
        assert "Workshop" not in inside.text


async def test_a_code_works_once_and_leaves_no_trace(owner: Owner) -> None:
    link = await owner.link()
    code = link.partition("code=")[2]
    async with httpx2.AsyncClient() as first, httpx2.AsyncClient() as second:
        assert (await second.head(link)).status_code == 405  # a preview does not use it up
        entered = await first.get(link)
        assert (entered.status_code, entered.headers["location"]) == (303, "/")
        assert entered.headers["referrer-policy"] == "no-referrer"
        cookie = entered.headers["set-cookie"].lower()
        assert all(word in cookie for word in ("httponly", "samesite=strict", "max-age=43200"))
        assert (await first.get(owner.gateway.base_url + "/")).text.count("Sign out") == 1
        again = await second.get(link)
        assert again.status_code == 403
        assert "no longer works" in again.text
        assert "set-cookie" not in again.headers
    log = (owner.gateway.state_dir / "logs" / "pointsman.log").read_text()
    rows = str(await audit_rows(owner.gateway.state_dir))
    assert code not in owner.gateway.stderr + log + rows


async def test_refused_codes_are_limited_and_good_ones_are_not(tmp_path: Path) -> None:
    async with running_page(tmp_path, {}) as owner, httpx2.AsyncClient() as guesser:
        url = owner.gateway.base_url + "/page/enter?code=wrong"
        statuses = [(await guesser.get(url)).status_code for _ in range(15)]
        assert statuses[0] == 403
        assert statuses[-1] == 429
        assert (await guesser.get(await owner.link())).status_code == 303


async def test_logout_ends_all_cookies_and_a_restart_does_not(tmp_path: Path) -> None:
    async with gateway_process(tmp_path, {}) as gateway, owner_of(gateway) as owner:
        cookies = dict(owner.http.cookies)
        open_link = await owner.link()
    port = int(owner.gateway.base_url.rpartition(":")[2])
    async with (
        gateway_process(tmp_path, {}, args=["--port", str(port)]) as gateway,
        httpx2.AsyncClient(cookies=cookies) as http,
    ):
        assert "Sign out" in (await http.get(gateway.base_url + "/")).text
        assert (await http.get(open_link)).status_code == 403  # codes are in memory
        link = (await asyncio.to_thread(ask, gateway.state_dir, "page_link"))["url"]
        await asyncio.to_thread(ask, gateway.state_dir, "page_logout")
        assert "Sign out" not in (await http.get(gateway.base_url + "/")).text
        assert (await http.get(link)).status_code == 403
        methods = [row["method"] for row in await audit_rows(gateway.state_dir, "--kind", "change")]
        assert "page/logout" in methods


async def test_cookie_of_another_gateway_is_nothing(owner: Owner, tmp_path: Path) -> None:
    async with running_page(tmp_path, {}) as other:
        (value,) = (value for name, value in other.http.cookies.items() if "page" in name)
    (name,) = (name for name in owner.http.cookies if "page" in name)
    async with httpx2.AsyncClient(cookies={name: value}) as http:
        assert "Sign out" not in (await http.get(owner.gateway.base_url + "/")).text


@pytest.mark.parametrize("header", ["Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-IP", "Via"])
async def test_what_comes_through_a_proxy_is_not_local(owner: Owner, header: str) -> None:
    assert (await owner.get("/", **{header: "1"})).status_code == 404
    assert (await owner.get("/page/servers", **{header: "1"})).status_code == 404


async def test_a_rebound_name_gets_nothing(owner: Owner) -> None:
    port = owner.gateway.base_url.rpartition(":")[2]
    assert (await owner.get("/", Host=f"evil.example:{port}")).status_code == 421
    assert (await owner.post("/page/leave", Host=f"evil.example:{port}")).status_code == 421


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
async def test_a_form_of_another_page_changes_nothing(owner: Owner, headers: dict[str, str]) -> None:
    refused = await owner.post("/page/leave", {}, **headers)
    assert refused.status_code == 403
    assert "set-cookie" not in refused.headers


async def test_a_form_needs_its_token_and_its_type(owner: Owner) -> None:
    base, origin = owner.gateway.base_url, {"Origin": owner.gateway.base_url}
    without = await owner.http.post(f"{base}/page/leave", data={"csrf": "x"}, headers=origin)
    assert without.status_code == 403
    multipart = await owner.http.post(f"{base}/page/leave", files={"csrf": b"x"}, headers=origin)
    assert multipart.status_code == 415
    no_origin = await owner.http.post(f"{base}/page/leave", data={"csrf": owner.csrf})
    assert no_origin.status_code == 403
    large = await owner.post("/page/leave", {"x": "y" * 5_000_000})
    assert large.status_code == 413
    many = await owner.post("/page/leave", {f"f{number}": "" for number in range(600)})
    assert many.status_code == 400


@pytest.mark.parametrize("fields", [{"name": "${HOME}"}, {"name": "$${x}"}, {"command": "sh"}, {"env": "A=1"}])
async def test_no_form_names_a_program_or_a_secret(owner: Owner, fields: dict[str, str]) -> None:
    refused = await owner.post("/page/leave", fields)
    assert refused.status_code == 400


async def test_every_answer_has_the_headers(owner: Owner) -> None:
    for path in ("/", "/page/servers", "/page/enter?code=x", "/page/nothing", "/page/static/page.css"):
        answer = await owner.get(path)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "unsafe" not in policy


async def test_static_files_ignore_ranges(owner: Owner) -> None:
    part = await owner.get("/page/static/page.js", Range="bytes=0-10,1-20")
    assert part.status_code == 200
    assert len(part.content) > 1000
    assert (await owner.get("/page/static/..%2f..%2fapp.py")).status_code == 404


async def test_a_disabled_page_is_not_there(tmp_path: Path) -> None:
    async with running_page(tmp_path, {}) as owner:
        owner.gateway.write_config({"page": {"enabled": False}})
        await asyncio.to_thread(ask, owner.gateway.state_dir, "reload")
        for path in ("/", "/page/servers", "/page/enter?code=x", "/page/static/page.css"):
            answer = await owner.get(path)
            assert (answer.status_code, answer.text) == (404, "Not Found")


async def test_a_public_page_is_there_for_other_names(tmp_path: Path) -> None:
    config = {"page": {"public": True}, "listen": {"allowed_hosts": ["tools.example"]}}
    async with running_page(tmp_path, config) as owner:
        shown = await owner.get("/", Host="tools.example", **{"X-Forwarded-For": "10.0.0.1"})
        assert shown.status_code == 200
        assert "http://tools.example/mcp" in shown.text


async def test_streams_end_with_the_gateway_and_are_bounded(tmp_path: Path) -> None:
    async with running_page(tmp_path, {}) as owner:
        url = owner.gateway.base_url + "/page/events?topics=figures"
        opened = [await owner.http.send(owner.http.build_request("GET", url), stream=True) for _ in range(16)]
        chunks = [response.aiter_bytes() for response in opened]
        for each in chunks:  # kept: one that is collected closes its response
            assert await anext(each)
        assert (await owner.http.send(owner.http.build_request("GET", url), stream=True)).status_code == 204
        began = asyncio.get_running_loop().time()
        assert await owner.gateway.stop(signal.SIGTERM) == 0
        assert asyncio.get_running_loop().time() - began < 8  # the grace for calls, which streams do not use
        for response in opened:
            await response.aclose()


async def test_the_commands_print_a_link_and_sign_everybody_out(tmp_path: Path) -> None:
    async with running_page(tmp_path, {}) as owner, httpx2.AsyncClient() as http:
        printed = next(line for line in owner.gateway.lines if line.startswith("open the page"))
        assert (await http.get(printed.rpartition(" ")[2])).status_code == 303
        opened = await command(owner, "open")
        assert (await http.get(opened.strip())).status_code == 303
        assert "Sign out" in (await http.get(owner.gateway.base_url + "/")).text
        assert "signed out" in await command(owner, "page", "logout")
        assert "Sign out" not in (await http.get(owner.gateway.base_url + "/")).text


async def test_signing_out_ends_this_browser_only(tmp_path: Path) -> None:
    async with running_page(tmp_path, {}) as owner, owner_of(owner.gateway) as other:
        left = await owner.post("/page/leave")
        assert (left.status_code, left.headers["location"]) == (303, "/")
        assert "Sign out" not in (await owner.get("/")).text
        assert "Sign out" in (await other.get("/")).text


@pytest.mark.browser
async def test_looks_right_without_a_sign_in(screens: Screens) -> None:
    context = await screens.browser.new_context(color_scheme="dark", viewport={"width": 390, "height": 844})
    try:
        page = await context.new_page()
        for name, path in (("welcome", "/"), ("refused", "/page/enter?code=old")):
            await page.goto(screens.owner.gateway.base_url + path)
            await screens.examine(page, f"{name}-dark-phone")
            await page.emulate_media(color_scheme="light")
            await screens.examine(page, f"{name}-light-phone")
    finally:
        await context.close()
