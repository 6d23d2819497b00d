"""URIs that lead back to their server."""

from __future__ import annotations

import re

import pytest
from pydantic import AnyUrl

from pointsman.catalog.names import is_app_uri, may_expand_to, unwrap_uri, wrap_uri

URIS = [
    "book://shelf/1",
    "file:///home/a%20b/c.txt?x=1#part",
    "http://[::1]:80/path",
    "urn:isbn:0451450523",
    "git+ssh://host/repo",
    "pointsman+inner+book://shelf/1",
    "no-scheme",
    "/absolute/path",
    "C:\\folder",
    "",
    "ui:chart",
]
APPS = ["ui://chart", "ui://", "ui:///chart", "ui://a/b?x=1#part", "ui://{name}/x", "ui://../b", "UI://Chart"]
SERVERS = ["lib", "my_server", "My-Server", "0", "-a", "_x"]


@pytest.mark.parametrize("uri", URIS + APPS)
@pytest.mark.parametrize("server_id", SERVERS)
def test_what_was_wrapped_leads_back(server_id: str, uri: str) -> None:
    assert unwrap_uri(wrap_uri(server_id, uri)) == (server_id, uri)


@pytest.mark.parametrize("uri", URIS)
@pytest.mark.parametrize("server_id", SERVERS)
def test_a_wrapped_uri_has_a_legal_scheme_without_case(server_id: str, uri: str) -> None:
    scheme = wrap_uri(server_id, uri).partition(":")[0]
    assert re.fullmatch(r"[a-z][A-Za-z0-9+.-]*", scheme)
    own_scheme = uri.partition(":")[0]
    assert scheme.removesuffix(own_scheme) == scheme.removesuffix(own_scheme).lower()


def test_servers_that_differ_in_case_or_punctuation_do_not_meet() -> None:
    assert len({wrap_uri(server_id, "a:b").lower() for server_id in ("a_b", "A_b", "a-b", "a.5fb", "ab")}) == 5


@pytest.mark.parametrize("uri", ["book://shelf/1", "file:///home/x.txt", "urn:isbn:0451450523", "http://Host/Path"])
def test_clients_that_parse_uris_do_not_change_them(uri: str) -> None:
    outside = wrap_uri("My_server", uri)
    assert unwrap_uri(str(AnyUrl(outside))) == ("My_server", uri)


@pytest.mark.parametrize("uri", APPS)
def test_the_page_of_an_app_keeps_its_scheme_and_names_its_server_first(uri: str) -> None:
    assert is_app_uri(uri)
    assert wrap_uri("My_server", uri) == f"{uri[:5]}My_server/{uri[5:]}"
    # A client that parses the URI may change its path, but not the server.
    parsed = unwrap_uri(str(AnyUrl(wrap_uri("My_server", uri))))
    assert parsed is not None
    assert parsed[0] == "My_server"


@pytest.mark.parametrize(
    "uri", ["book://shelf/1", "ui:chart", "ui:/chart", "pointsman:x", "pointsman+", "pointsman+lib", "Xpointsman+a+b:c"]
)
def test_other_uris_are_not_ours(uri: str) -> None:
    assert unwrap_uri(uri) is None
    assert not is_app_uri(uri)


@pytest.mark.parametrize(
    ("template", "uri", "answer"),
    [
        ("book://{id}", "book://7", True),
        ("book://{id}/text", "book://7/text", True),
        ("book://{id}/text", "book://7/image", False),
        ("book://{id}", "note://7", False),
        ("book://a", "book://a", True),
        ("{+anything}", "book://a", False),
        ("ab{x}b", "ab", False),
    ],
)
def test_a_template_fits_what_begins_and_ends_like_it(template: str, uri: str, answer: bool) -> None:
    assert may_expand_to(template, uri) is answer
