"""`oauth` of a server: what is accepted, and what a mistake is answered with."""

from __future__ import annotations

import pytest

from pointsman.config.errors import ConfigError
from pointsman.config.loader import parse
from pointsman.config.sections.server import OAuth, Server

URL = "https://tracker.example/mcp"


def test_auto_is_the_default_of_all_keys() -> None:
    assert Server.model_validate({"url": URL, "oauth": "auto"}).oauth == OAuth()
    assert Server.model_validate({"url": URL}).oauth is None


def test_a_server_on_this_machine_needs_no_tls() -> None:
    for host in ("127.0.0.1", "localhost", "[::1]"):
        assert Server.model_validate({"url": f"http://{host}:1/mcp", "oauth": "auto"}).oauth is not None


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (f"{{url: '{URL}', oauth: yes}}", "must be `auto` or keys"),
        (f"{{url: '{URL}', credentials: per-caller}}", "needs `oauth` or `caller_headers`"),
        (f"{{url: '{URL}', caller_headers: {{a: {{X: y}}}}}}", "needs `credentials: per-caller`"),
        ("{command: x, credentials: per-caller}", "needs a server with `url`"),
        (f"{{url: '{URL}', credentials: per-caller, caller_headers: {{'@a': {{X: y}}}}}}", "caller_headers"),
        (
            f"{{url: '{URL}', credentials: per-caller, oauth: {{grant: client_credentials, client_id: a, "
            "client_secret: b}}",
            "persons sign in",
        ),
        (f"{{url: '{URL}', oauth: {{client_secret: x}}}}", "need `client_id`"),
        (
            f"{{url: '{URL}', oauth: {{grant: client_credentials}}}}",
            "needs `client_id`, and `client_secret` or `private_key`",
        ),
        (f"{{url: '{URL}', oauth: {{grant: client_credentials, private_key: x}}}}", "needs `client_id`"),
        (f"{{url: '{URL}', oauth: {{private_key: x}}}}", "need `client_id`"),
        (f"{{url: '{URL}', oauth: {{client_id: a, private_key: x, client_secret: y}}}}", "takes the place of"),
        (f"{{url: '{URL}', oauth: {{client_id: a, private_key: x, token_auth: none}}}}", "takes the place of"),
        (f"{{url: '{URL}', oauth: {{client_id: a, key_id: x}}}}", "`key_id` needs `private_key`"),
        (f"{{url: '{URL}', oauth: {{client_id: a, private_key: x, key_id: ''}}}}", "key_id"),
        (f"{{url: '{URL}', oauth: {{scope: 'a  b'}}}}", "one space between them"),
        (f"{{url: '{URL}', oauth: {{client_id: ''}}}}", "printable ASCII"),
        (f"{{url: '{URL}', oauth: {{issuer: 'http://as.example'}}}}", "must begin with https://"),
        (f"{{url: '{URL}', oauth: {{callback_port: 80}}}}", "1024"),
        (f"{{url: '{URL}', oauth: {{clientId: x}}}}", "did you mean `client_id`"),
        (f"{{url: '{URL}', oauth: auto, headers: {{authorization: x}}}}", "remove the one in `headers`"),
        ("{url: 'http://tracker.example/mcp', oauth: auto}", "needs an https:// URL"),
        ("{command: tracker, oauth: auto}", "needs a server with `url`"),
    ],
)
def test_a_mistake_is_named(entry: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        parse(f"servers: {{tracker: {entry}}}", "f.yaml", {})


def test_a_block_from_elsewhere_cannot_bring_a_client() -> None:
    with pytest.raises(ConfigError, match="is not read from `mcpServers`"):
        parse(f"mcpServers: {{t: {{url: '{URL}', oauth: {{client_id: x}}}}}}", "f.yaml", {})
