"""A revocation takes effect although the file has a mistake elsewhere; where it cannot, the command says so loudly."""

from __future__ import annotations

import hashlib
import signal
from pathlib import Path

import httpx2
import pytest

from tests.gateway_process import GatewayProcess, gateway_process
from tests.router.cli.commands import run

MISTAKE = "servers:\n  shop: {comand: no-such-program}\n"


def entry(secret: str, servers: str = "'*'") -> str:
    digest = hashlib.sha256(secret.encode()).hexdigest()
    return f"{{sha256: {digest}, projects: ['*'], servers: [{servers}]}}"


def text_of(tokens: dict[str, str], rest: str = "") -> str:
    return "tokens:\n" + "".join(f"  {name}: {value}\n" for name, value in tokens.items()) + rest


async def status_of(gateway: GatewayProcess, secret: str) -> int:
    """200 if the gateway knows the token, else 401."""
    async with httpx2.AsyncClient() as http:
        answer = await http.get(f"{gateway.base_url}/health", headers={"Authorization": f"Bearer {secret}"})
    return answer.status_code


async def test_a_token_is_revoked_although_the_file_has_a_mistake(tmp_path: Path) -> None:
    async with gateway_process(tmp_path, {}, token="ptm_kept") as gateway:
        gateway.config_file.write_text(text_of({"kept": entry("ptm_kept"), "curl": entry("ptm_curl")}))
        assert (await run(tmp_path, "token", "list")).code == 0
        gateway.send_signal(signal.SIGHUP)
        await gateway.until_logged("configuration reloaded")
        assert await status_of(gateway, "ptm_curl") == 200
        gateway.config_file.write_text(gateway.config_file.read_text() + MISTAKE)
        revoked = await run(tmp_path, "token", "revoke", "curl", "--json")
        assert (revoked.code, revoked.json["inEffect"]) == (0, True), revoked.stderr
        assert "rejects the token from now on" in revoked.stderr
        assert "servers.shop.comand" in revoked.stderr
        assert ":" + str(len(gateway.config_file.read_text().splitlines())) + ":" in revoked.stderr  # the line
        assert await status_of(gateway, "ptm_curl") == 401
        assert await status_of(gateway, "ptm_kept") == 200


async def test_a_rejected_file_adds_no_token_and_widens_none(tmp_path: Path) -> None:
    async with gateway_process(tmp_path, {}, token="ptm_kept") as gateway:
        narrow = {"kept": entry("ptm_kept"), "narrow": entry("ptm_narrow", ""), "other": entry("ptm_other")}
        gateway.config_file.write_text(text_of(narrow))
        gateway.send_signal(signal.SIGHUP)
        await gateway.until_logged("configuration reloaded")
        wide = {"kept": entry("ptm_kept"), "narrow": entry("ptm_narrow"), "new": entry("ptm_new")}
        gateway.config_file.write_text(text_of({**wide, "other": entry("ptm_changed")}, MISTAKE))
        gateway.send_signal(signal.SIGHUP)
        await gateway.until_logged("withdrew tokens that the rejected configuration no longer has: `other`")
        secrets = ("ptm_kept", "ptm_narrow", "ptm_new", "ptm_changed", "ptm_other")
        assert [await status_of(gateway, secret) for secret in secrets] == [200, 200, 401, 401, 401]
        async with httpx2.AsyncClient() as http:
            headers = {"Authorization": "Bearer ptm_narrow"}
            seen = (await http.get(f"{gateway.base_url}/health", headers=headers)).json()
        assert seen["servers"] == {}


async def test_a_file_without_tokens_or_that_is_no_yaml_withdraws_none_and_the_command_says_so(tmp_path: Path) -> None:
    async with gateway_process(tmp_path, {}, token="ptm_only") as gateway:
        gateway.config_file.write_text(text_of({"only": entry("ptm_only")}))
        gateway.send_signal(signal.SIGHUP)
        await gateway.until_logged("configuration reloaded")
        gateway.config_file.write_text(gateway.config_file.read_text() + MISTAKE)
        revoked = await run(tmp_path, "token", "revoke", "only")
        assert (revoked.code, "TOKEN `only` STILL WORKS" in revoked.stderr) == (1, True), revoked.stderr
        assert "servers.shop.comand" in revoked.stderr
        assert await status_of(gateway, "ptm_only") == 200
        assert "only" not in gateway.config_file.read_text()
        gateway.config_file.write_text("tokens: [")
        gateway.send_signal(signal.SIGHUP)
        await gateway.until_logged("pointsman.yaml:1")
        assert await status_of(gateway, "ptm_only") == 200


@pytest.mark.parametrize("spoilt", ["\nservers: [\n", "\n\tx: 1\n", None], ids=["unclosed", "tab", "gone"])
async def test_a_file_that_cannot_be_edited_leaves_the_token_and_the_command_says_so(
    spoilt: str | None, tmp_path: Path
) -> None:
    async with gateway_process(tmp_path, {}, token="ptm_kept") as gateway:
        text = text_of({"kept": entry("ptm_kept"), "curl": entry("ptm_curl")})
        gateway.config_file.write_text(text)
        gateway.send_signal(signal.SIGHUP)
        await gateway.until_logged("configuration reloaded")
        if spoilt is None:
            gateway.config_file.unlink()
        else:
            gateway.config_file.write_text(text + spoilt)
        revoked = await run(tmp_path, "token", "revoke", "curl")
        assert revoked.code in (1, 2)
        assert revoked.stderr.startswith("TOKEN `curl` STILL WORKS"), revoked.stderr
        assert "pointsman.yaml" in revoked.stderr
        assert await status_of(gateway, "ptm_curl") == 200


async def test_a_token_that_does_not_exist_is_not_said_to_work(tmp_path: Path) -> None:
    async with gateway_process(tmp_path, {}, token="ptm_kept"):
        revoked = await run(tmp_path, "token", "revoke", "nosuch")
        assert (revoked.code, "WORKS" in revoked.stderr) == (2, False), revoked.stderr
