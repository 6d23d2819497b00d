"""What is shown of a configuration."""

from __future__ import annotations

import json

import pytest

from pointsman.config.loader import examine
from pointsman.config.mask import MASK, mask_args, mask_config, mask_url

HASH = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

TEXT = f"""
servers:
  a:
    command: docker
    args: [run, --api-key, in-the-open-1, "--token=in-the-open-2", -e, "PASSWORD=in-the-open-3", "${{FILLED}}", image]
    env: {{KEY: in-the-open-4}}
  b:
    url: https://user:in-the-open-5@b.example/mcp?key=in-the-open-6#in-the-open-7
    headers: {{Authorization: Bearer in-the-open-8}}
cloud_search: {{url: https://search.example, token: in-the-open-9}}
state:
  request_keys: [in-the-open-11-0123456789012345678901234567]
tokens: {{laptop: {{sha256: {HASH}, servers: [a]}}}}
"""


def test_no_secret_is_shown_wherever_it_stands() -> None:
    loaded = examine(TEXT, "f.yaml", {"FILLED": "in-the-open-12"})
    shown = json.dumps(mask_config(loaded.config, loaded.external_texts))
    assert "in-the-open" not in shown
    for plain in ("docker", "run", "--api-key", "image", "b.example", HASH):
        assert plain in shown


@pytest.mark.parametrize(
    ("args", "shown"),
    [
        (["-y", "@scope/mcp-server-time@2025.11.25", "--local-timezone=Europe/Berlin"], None),
        (["--directory", "/srv/app", "https://host.example/mcp"], None),
        (["--header", "Authorization: Bearer abc"], ["--header", f"Authorization: {MASK}"]),
        (["--password", "--verbose"], None),
        (["ghp_0123456789"], [MASK]),
        (["sk-live"], [MASK]),
        (["6f1c0ab2-1111-2222-3333-444455556666"], [MASK]),
        (["A1b2C3d4E5f6G7h8I9"], [MASK]),
        (["https://host.example/s/A1b2C3d4E5f6G7h8I9/mcp"], [f"https://host.example/s/{MASK}/mcp"]),
    ],
)
def test_arguments_are_shown_unless_they_look_like_secrets(args: list[str], shown: list[str] | None) -> None:
    assert mask_args(args) == (args if shown is None else shown)


def test_an_address_keeps_its_host() -> None:
    assert mask_url("https://me@host.example:8443/mcp?a=1&b") == f"https://{MASK}@host.example:8443/mcp?a={MASK}&{MASK}"
    assert (
        mask_url("https://host.example/x/mcp", {"https://host.example/x/mcp"}) == f"https://host.example/{MASK}/{MASK}"
    )
