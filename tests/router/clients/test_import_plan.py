"""The servers of every client in our own form: same meaning, secrets in files, ids mended, never this gateway."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pointsman.config.loader import parse
from pointsman.config.sections.server import Server
from pointsman.router.clients.client_file import ClientFileError
from pointsman.router.clients.dialects import DIALECTS, user_file
from pointsman.router.clients.found_servers import Findings, of_client, of_text, offer, points_here
from pointsman.router.clients.import_plan import Plan, free_id, plan_import

FILES = Path(__file__).parent / "files"
EXPECTED = json.loads((Path(__file__).parent / "imported.json").read_text())
URL = "http://127.0.0.1:3282/mcp"
every_client = pytest.mark.parametrize("name", DIALECTS)


def planned(*findings: Findings, text: str = "", folder: Path = Path("/nowhere")) -> Plan:
    return plan_import(findings, text, folder / "pointsman.yaml", (URL,), {})


def of_file(name: str, home: Path) -> Findings:
    [source] = FILES.glob(f"{name}.*")
    environ = {"HOME": str(home)}
    target = user_file(DIALECTS[name], environ)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(source.read_text())
    return of_client(DIALECTS[name], environ)


def shown(plan: Plan) -> dict[str, Any]:
    return {
        "servers": {
            addition.server_id: {"server": addition.server, "secrets": addition.secrets, "notes": addition.found.notes}
            for addition in plan.additions
        },
        "left out": {left.name: left.reason for left in plan.left_out},
    }


@every_client
def test_the_file_of_a_client_is_read_as_expected(name: str, tmp_path: Path) -> None:
    found = json.loads(json.dumps(shown(planned(of_file(name, tmp_path)))))
    assert found == EXPECTED[name]


@every_client
def test_what_is_planned_is_a_good_configuration(name: str, tmp_path: Path) -> None:
    plan = planned(of_file(name, tmp_path), folder=tmp_path)
    (tmp_path / "secrets").mkdir()
    for file, text in plan.secrets.items():
        (tmp_path / "secrets" / file).write_text(text)
    config = parse(json.dumps({"servers": plan.servers}), str(tmp_path / "pointsman.yaml"), {})
    assert set(config.servers) == set(plan.servers)


def test_a_program_gets_the_values_that_the_client_gave_it(tmp_path: Path) -> None:
    plan = planned(of_file("claude-desktop", tmp_path), folder=tmp_path)
    (tmp_path / "secrets").mkdir()
    for file, text in plan.secrets.items():
        (tmp_path / "secrets" / file).write_text(text)
    servers = parse(json.dumps({"servers": plan.servers}), str(tmp_path / "pointsman.yaml"), {}).servers
    assert servers["remote"].args[-1] == "Authorization:${AUTH_HEADER}"  # mcp-remote expands it
    assert servers["remote"].env["AUTH_HEADER"].get_secret_value() == "Bearer sk-0123456789abcdefghij"


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"command": "x", "env": {"KEY": "${KEY}"}}, {"command": "x", "env": {"KEY": "${KEY:-}"}}),
        (
            {"command": "x", "args": ["A:${KEY}"], "env": {"KEY": "v1"}},
            {"command": "x", "args": ["A:$${KEY}"], "env": {"KEY": "${file:secrets/x.KEY}"}},
        ),
        (
            {"url": "https://a.example/mcp", "headers": {"X-A": "{file:~/a.txt}", "X-B": "{file:b.txt}"}},
            {"url": "https://a.example/mcp", "headers": {"X-A": "${file:/home/anna/a.txt}", "X-B": "{file:b.txt}"}},
        ),
        ({"command": "x", "args": ["$HOME ${unclosed"]}, {"command": "x", "args": ["$HOME $${unclosed"]}),
    ],
)
def test_references_keep_their_meaning(entry: dict[str, Any], expected: dict[str, Any]) -> None:
    found = of_text(json.dumps({"mcpServers": {"x": entry}}), "a.json", {"HOME": "/home/anna"})
    assert planned(found).servers == {"x": expected}


def test_a_server_in_two_clients_is_planned_once_and_another_with_its_name_gets_a_new_id() -> None:
    one = of_text('{"mcpServers": {"time": {"command": "uvx", "args": ["mcp-server-time"]}}}', "a.json", {})
    two = of_text('{"servers": {"clock": {"command": "uvx", "args": ["mcp-server-time"]}}}', "b.json", {})
    three = of_text('{"mcpServers": {"time": {"command": "other"}}}', "c.json", {})
    plan = planned(one, two, three)
    assert list(plan.servers) == ["time", "time-2"]
    assert [left.reason for left in plan.left_out] == ["it is the same as `time`"]


def test_what_the_configuration_has_already_is_left_out() -> None:
    text = "servers:\n  clock: {command: uvx, args: [mcp-server-time]}\n  time: {command: x}\n"
    found = of_text('{"mcpServers": {"time": {"command": "uvx", "args": ["mcp-server-time"]}}}', "a.json", {})
    assert not planned(found, text=text).additions
    other = of_text('{"mcpServers": {"time": {"command": "y"}}}', "a.json", {})
    assert list(planned(other, text=text).servers) == ["time-2"]


@pytest.mark.parametrize(
    "server",
    [
        {"url": "http://localhost:3282/projects/research/mcp"},
        {"url": "https://elsewhere.example/mcp", "headers": {"Authorization": "Bearer ptm_x"}},
        {"command": "/usr/bin/pointsman", "args": ["stdio"]},
        {"command": "uvx", "args": ["pointsman@1.0", "stdio"]},
        {"command": "python", "args": ["-m", "pointsman", "stdio"]},
        {"command": "npx", "args": ["mcp-remote", "http://127.0.0.1:3282/mcp"]},
    ],
)
def test_an_entry_that_leads_to_this_gateway_is_recognised(server: dict[str, Any]) -> None:
    assert points_here(server, (URL,))


@pytest.mark.parametrize("server", [{"url": "http://localhost:3283/mcp"}, {"command": "uvx", "args": ["time"]}])
def test_other_entries_are_not(server: dict[str, Any]) -> None:
    assert not points_here(server, (URL,))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("My Server 2.0", "My-Server-2-0"),
        ("github.com/acme/tools", "tools"),
        ("a__b", "a_b"),
        ("pointsman", "pointsman-2"),
        ("", "server"),
        ("日本", "server"),
        ("x" * 200, "x" * 56),
        ("../../etc/passwd", "passwd"),
    ],
)
def test_a_name_becomes_an_id(name: str, expected: str) -> None:
    assert free_id(name, ()) == expected
    assert parse(json.dumps({"servers": {expected: {"command": "x"}}}), "x.yaml", {}).servers


def test_an_entry_that_is_not_valid_here_is_left_out_with_the_reason() -> None:
    text = '{"mcpServers": {"bad": {"url": "ftp://x"}, "worse": 3, "none": {}, "good": {"command": "x"}}}'
    plan = planned(of_text(text, "a.json", {}))
    assert list(plan.servers) == ["good"]
    assert {left.name for left in plan.left_out} == {"bad", "worse", "none"}


REGISTRY: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        {
            "name": "io.github.acme/weather",
            "packages": [
                {
                    "registryType": "pypi",
                    "identifier": "weather-mcp",
                    "version": "0.5.0",
                    "transport": {"type": "stdio"},
                    "environmentVariables": [
                        {"name": "WEATHER_API_KEY", "isRequired": True, "isSecret": True},
                        {"name": "UNITS", "default": "celsius"},
                        {"name": "OPTIONAL"},
                    ],
                    "packageArguments": [{"type": "named", "name": "--mode", "value": "fast"}],
                }
            ],
        },
        {
            "name": "io.github.acme/weather",
            "command": "uvx",
            "args": ["weather-mcp@0.5.0", "--mode", "fast"],
            "env": {"WEATHER_API_KEY": "${WEATHER_API_KEY:-}", "UNITS": "celsius"},
        },
    ),
    (
        {
            "name": "weather",
            "packages": [
                {"registry_type": "mcpb", "identifier": "https://x.example/a.mcpb"},
                {
                    "registry_type": "npm",
                    "identifier": "@acme/weather",
                    "version": "1.0.2",
                    "package_arguments": [{"type": "positional", "value_hint": "dir", "is_required": True}],
                },
            ],
        },
        {"command": "npx", "args": ["-y", "@acme/weather@1.0.2", "${DIR:-}"]},
    ),
    (
        {
            "server": {
                "name": "weather",
                "packages": [
                    {
                        "registryType": "oci",
                        "identifier": "acme/weather",
                        "version": "3",
                        "environmentVariables": [{"name": "LEVEL", "value": "info"}],
                    }
                ],
            }
        },
        {
            "command": "docker",
            "args": ["run", "-i", "--rm", "-e", "LEVEL", "acme/weather:3"],
            "env": {"LEVEL": "info"},
        },
    ),
    (
        {
            "name": "weather",
            "remotes": [
                {"type": "sse", "url": "https://weather.example/sse"},
                {
                    "type": "streamable-http",
                    "url": "https://{tenant}.example/mcp",
                    "variables": {"tenant": {"default": "eu"}},
                    "headers": [{"name": "X-Key", "value": "Bearer {key}", "variables": {"key": {"isSecret": True}}}],
                },
            ],
        },
        {"url": "https://eu.example/mcp", "headers": {"X-Key": "Bearer ${KEY:-}"}},
    ),
]


@pytest.mark.parametrize(("entry", "expected"), REGISTRY)
def test_an_entry_of_the_registry_becomes_a_server(entry: dict[str, Any], expected: dict[str, Any]) -> None:
    [server] = planned(of_text(json.dumps(entry), "server.json", {})).servers.values()
    assert server == expected
    Server.model_validate(
        {key: value for key, value in server.items() if key != "url"} if "command" in server else {"url": server["url"]}
    )


@pytest.mark.parametrize("reference", ["{file:/etc/passwd}", "{cmd:touch x}", "{keyring:x}", "{HOME}"])
def test_the_parts_of_a_registry_entry_never_become_a_reference(reference: str) -> None:
    variables = {"a": {"default": "$"}, "b": {"default": reference}, "c": {"default": "$"}}
    remote = {
        "type": "streamable-http",
        "url": f"https://x.example/{{a}}{{b}}/{{c}}{reference}/${{b}}",
        "variables": variables,
    }
    plan = planned(of_text(json.dumps({"name": "x", "remotes": [remote]}), "server.json", {}))
    for server in plan.servers.values():
        assert re.sub(r"\$\$\{", "", server["url"]).count("${") == 0
    if reference.startswith(("{cmd", "{key")):
        [left] = plan.left_out
        assert "never imported" in left.reason
    else:
        assert plan.servers


def test_no_text_of_a_registry_entry_is_a_reference() -> None:
    text = "${file:/etc/passwd}"
    package = {
        "registryType": "npm",
        "identifier": text,
        "version": text,
        "packageArguments": [{"type": "named", "name": f"--x={text}"}, {"type": "positional", "value": text}],
        "environmentVariables": [{"name": "X", "value": text}],
    }
    [server] = planned(of_text(json.dumps({"name": "x", "packages": [package]}), "server.json", {})).servers.values()
    assert "${" not in json.dumps(server).replace("$${", "")


@pytest.mark.parametrize("reference", ["${cmd:touch x}", "${keyring:x}"])
@pytest.mark.parametrize("key", ["headers", "url"])
def test_a_command_or_a_keyring_is_never_imported(key: str, reference: str) -> None:
    server: dict[str, Any] = {"url": "https://x.example/mcp", "headers": {"X-Key": "none"}}
    server[key] = {"X-Key": f"Bearer {reference}"} if key == "headers" else f"https://x.example/{reference}"
    [left] = planned(of_text(json.dumps({"mcpServers": {"x": server}}), "a.json", {})).left_out
    assert "never imported" in left.reason


def test_what_looks_like_a_command_in_the_arguments_of_a_program_stays_literal() -> None:
    args = ["-c", "echo ${cmd:0:3} ${cmd:-x}"]
    text = json.dumps({"mcpServers": {"x": {"command": "bash", "args": args}}})
    plan = planned(of_text(text, "a.json", {"cmd": "y"}))
    assert "$${cmd:0:3}" in plan.servers["x"]["args"][1]


def test_an_entry_of_the_registry_without_a_way_to_run_it_says_so() -> None:
    [left] = planned(of_text('{"name": "x", "packages": [{"registryType": "mcpb"}]}', "server.json", {})).left_out
    assert "no remote address" in left.reason


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('{"time": {"command": "uvx"}}', "stdin"),
        ('{"command": "uvx"}', "time.json"),
        ("mcpServers:\n  time: {command: uvx}\n", "stdin"),
        ('[mcp_servers.time]\ncommand = "uvx"\n', "stdin"),
        ('// pasted\n{"mcp": {"time": {"type": "local", "command": ["uvx"]}}}', "stdin"),
    ],
)
def test_a_text_may_have_any_of_the_forms(text: str, name: str) -> None:
    assert planned(of_text(text, name, {})).servers == {"time": {"command": "uvx"}}


@pytest.mark.parametrize("text", ["", "{}", "[1]", "nothing", '{"a": 1}', "{" * 90_000, "a: [" * 50_000, "\0"])
def test_a_text_without_servers_is_refused(text: str) -> None:
    with pytest.raises(ClientFileError):
        of_text(text, "stdin", {})


def test_the_offer_counts_servers_per_client_without_this_gateway(tmp_path: Path) -> None:
    assert offer({"HOME": str(tmp_path)}, URL) is None
    of_file("claude-desktop", tmp_path)
    of_file("cursor", tmp_path)
    of_file("zed", tmp_path)
    user_file(DIALECTS["zed"], {"HOME": str(tmp_path)}).write_text("{ broken")
    assert offer({"HOME": str(tmp_path)}, URL) == "Claude Desktop (3), Cursor (2)"


def test_of_a_huge_file_only_so_many_servers_are_taken() -> None:
    text = json.dumps({"mcpServers": {f"s{n}": {"command": f"c{n}"} for n in range(2000)}})
    assert len(of_text(text, "a.json", {}).servers) == 500


BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    "text", [BOMB + "mcpServers:\n  x: {command: y, args: *i}\n", "a: &a [*a]\nmcpServers: {x: {command: *a}}\n"]
)
def test_aliases_that_stand_for_too_much_are_refused(text: str) -> None:
    with pytest.raises(ClientFileError):
        of_text(text, "config.yaml", {})


@pytest.mark.parametrize("value", ["0x" + "f" * 6000, "[[1]]", "{a: 1}"])
def test_a_value_that_is_no_text_leaves_out_its_server_alone(value: str) -> None:
    plan = planned(of_text(f"mcpServers:\n  bad: {{cmd: x, args: [{value}]}}\n  good: {{cmd: x}}\n", "a.yaml", {}))
    assert list(plan.servers) == ["good"]
    assert [left.name for left in plan.left_out] == ["bad"]


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("args", {"a": 1}, "its `args` is not a list"),
        ("args", "--fast", "its `args` is not a list"),
        ("env", ["A=1"], "its `env` is not a mapping of names to values"),
        ("headers", "X: 1", "its `headers` is not a mapping of names to values"),
    ],
)
def test_a_key_of_the_wrong_shape_is_not_dropped_silently(key: str, value: Any, reason: str) -> None:
    servers = {"bad": {"command": "x", key: value}, "good": {"command": "x", key: None}}
    plan = planned(of_text(json.dumps({"mcpServers": servers}), "a.json", {}))
    assert list(plan.servers) == ["good"]
    assert [left.reason for left in plan.left_out] == [reason]


def test_a_name_that_is_too_long_leaves_out_its_server_alone() -> None:
    servers = {"bad": {"command": "x", "env": {"A" * 2000: "1"}}, "good": {"command": "x"}}
    assert list(planned(of_text(json.dumps({"mcpServers": servers}), "a.json", {})).servers) == ["good"]


def test_a_server_that_was_pasted_in_a_client_s_words_is_not_added_again() -> None:
    text = json.dumps({"mcpServers": {"acme.com/docs": {"serverUrl": "https://docs.example/mcp"}}})
    again = of_text(json.dumps({"mcpServers": {"d": {"httpUrl": "https://docs.example/mcp"}}}), "f.json", {})
    other = of_text(json.dumps({"mcpServers": {"docs": {"httpUrl": "https://other.example/mcp"}}}), "f.json", {})
    plan = planned(again, other, text=text)
    assert [left.reason for left in plan.left_out] == ["it is the same as `docs`"]
    assert list(plan.servers) == ["docs-2"]


@pytest.mark.parametrize("key", ["tools", "includeTools", "enabled_tools"])
def test_an_empty_list_of_allowed_tools_allows_none(key: str) -> None:
    found = of_text(json.dumps({"mcpServers": {"a": {"command": "x", key: []}}}), "f.json", {})
    assert found.servers[0].server["tool_permissions"] == {"*": False}


def test_how_far_a_server_is_trusted_is_not_imported() -> None:
    entry = {"command": "docs", "pin": "off", "confirm": "never", "sandbox": {}}
    [found] = of_text(json.dumps({"mcpServers": {"docs": entry}}), "f.json", {}).servers
    assert found.server == {"command": "docs"}
    assert [note.partition(",")[0] for note in found.notes] == [
        "`confirm` is left out of a client's block",
        "`pin` is left out of a client's block",
        "`sandbox` is left out of a client's block",
    ]
