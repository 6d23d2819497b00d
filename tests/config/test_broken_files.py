"""Every broken file and the exact lines that a person reads."""

from __future__ import annotations

from textwrap import dedent

import pytest

from pointsman.config.errors import ConfigError
from pointsman.config.loader import parse

HASH = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
ROOT_NAME = "the name of a root may contain letters, digits, `_`, `-` and `.`, such as `app`"
ADDRESS = "must be a URL like https://host.example/mcp"
MOMENT = "must be a date like 2027-01-31 or a time like 2027-01-31T18:00:00Z"

BROKEN: dict[str, tuple[str, list[str]]] = {
    "values that could never work": (
        """\
        servers:
          a: {command: "  ", env: {"A=B": x}}
          b: {url: "http://b.example/mcp", headers: {"Bad Header": x, Good: "two\\nlines"}}
        timeouts: {call_s: true}
        """,
        [
            "f.yaml:2:16: servers.a.command: must name a program, such as `uvx`",
            'f.yaml:2:28: servers.a.env."A=B": the name of a variable must not be empty or contain `=`',
            'f.yaml:3:46: servers.b.headers."Bad Header": the name of a header may contain letters, digits and `-`',
            "f.yaml:3:69: servers.b.headers.Good: must be one line",
            "f.yaml:4:20: timeouts.call_s: must be a number, not true or false",
        ],
    ),
    "a comment as in JSON, before a key": (
        'servers: {\n  // the "clock"\n  "time": {"command": "uvx"}\n}\n',
        ["f.yaml:2:3: `//` does not start a comment in YAML; use `#`"],
    ),
    "a comment as in JSON, behind a value": (
        'servers: {\n  "time": {"command": "uvx"}, // the clock\n  "web": {"url": "http://x/mcp"}\n}\n',
        ["f.yaml:2:31: `//` does not start a comment in YAML; use `#`"],
    ),
    "a comment as in C": (
        'listen: {port: 1}\nmcpServers: {\n  /* the clock */\n  "time": {"command": "uvx"}\n}\n',
        ["f.yaml:3:3: `/*` does not start a comment in YAML; use `#`"],
    ),
    "a comment as in JSON, on top": (
        "// mine\nservers:\n  time: {command: uvx}\n",
        ["f.yaml:1:1: `//` does not start a comment in YAML; use `#`"],
    ),
    "a comment as in JSON, behind a command": (
        "servers:\n  time:\n    command: uvx // the clock\n",
        ["f.yaml:3:14: servers.time.command: `//` does not start a comment in YAML; use `#`"],
    ),
    "slashes that are no comment": (
        'servers: {\n  "web": {"url": "https://x/mcp"} "time": {}\n}\n',
        ["f.yaml:2:35: a comma is missing before this, or a quote before it is not closed"],
    ),
    "not a mapping": (
        "- servers",
        ["f.yaml:1:1: must be a mapping of keys to values"],
    ),
    "a colon too many": (
        "listen: host: x",
        ["f.yaml:1:13: unexpected `:`; quote a value that contains `: `, or check the indentation"],
    ),
    "a tab": (
        "servers:\n\ttime: {}",
        ["f.yaml:2:1: a tab cannot indent YAML; use spaces"],
    ),
    "a bracket that never closes": (
        "servers: {time: {args: [a, b}}",
        ["f.yaml:1:29: `]` is missing before this `}`, for the `[` in line 1"],
    ),
    "a quote that never closes": (
        "servers:\n  time: {command: 'uvx}\n",
        ["f.yaml:2:19: the quote that opens here is never closed; add `'` at the end of the value"],
    ),
    "a value that starts with an indicator": (
        "servers: {time: {command: @home}}",
        ["f.yaml:1:27: a value cannot start with '@'; quote it"],
    ),
    "a reference without quotes inside braces": (
        "servers: {time: {command: x, env: {KEY: ${KEY}}}}",
        ['f.yaml:1:42: quote a value with ${...} inside braces or brackets: "${NAME}"'],
    ),
    "a control character": (
        "listen:\n  host: a\x07b",
        ["f.yaml:2:10: the character U+0007 is not allowed in YAML"],
    ),
    "a character that does not exist": (
        'listen:\n  host: "\\U00200000"',
        ["f.yaml:2:10: this escape is not a Unicode character"],
    ),
    "two documents": (
        "listen: {}\n---\nlisten: {}",
        ["f.yaml:2:1: a second document starts here (`---`); only one is allowed"],
    ),
    "nested without end": (
        "[" * 2000,
        ["f.yaml:1:33: nested deeper than 32 levels"],
    ),
    "an alias of nothing": (
        "servers: *none",
        ["f.yaml:1:10: `*none` is an alias of nothing; if it is meant as text, quote it"],
    ),
    "an alias of itself": (
        "servers: &all\n  time: *all",
        ["f.yaml:1:10: servers.time: is an alias of itself; write the value out"],
    ),
    "a tag": (
        "listen: {host: !secret x}",
        ["f.yaml:1:16: listen.host: the tag `!secret` is not supported"],
    ),
    "keys given twice": (
        """\
        servers:
          time: {command: uvx, command: npx}
          time: {command: uvx}
        servers: {}
        """,
        [
            "f.yaml:2:24: servers.time.command: is a duplicate of the key in line 2; keep one of them",
            "f.yaml:3:3: servers.time: is a duplicate of the key in line 2; keep one of them",
            "f.yaml:4:1: servers: is a duplicate of the key in line 1; keep one of them",
        ],
    ),
    "unknown keys": (
        """\
        servrs: {}
        servers:
          time:
            command: uvx
            toolPermissions: {}
            timeouts: {call: 3}
            xyzzy: 1
        limits: {bodybytes: 1}
        """,
        [
            "f.yaml:1:1: servrs: unknown key (did you mean `servers`?)",
            "f.yaml:5:5: servers.time.toolPermissions: unknown key (did you mean `tool_permissions`?)",
            "f.yaml:6:16: servers.time.timeouts.call: unknown key (did you mean `call_s`?)",
            "f.yaml:7:5: servers.time.xyzzy: unknown key",
            "f.yaml:8:10: limits.bodybytes: unknown key (did you mean `body_bytes`?)",
        ],
    ),
    "a sandbox that is no mapping": (
        "servers: {time: {command: uvx, sandbox: true}}",
        [
            "f.yaml:1:41: servers.time.sandbox: must be a mapping of keys to values; `{}` is the strictest sandbox, "
            "and `{read: [...], write: [...], network: true}` allows more",
        ],
    ),
    "wrong kinds of values": (
        """\
        listen: {port: high, allowed_hosts: gateway.example}
        limits: 5
        audit: {arguments: perhaps, max_days: 1.5}
        timeouts: {call_s: soon, list_s: .inf}
        servers: {time: {command: [uvx], tool_permissions: {a: never}}}
        """,
        [
            "f.yaml:1:16: listen.port: must be a whole number",
            "f.yaml:1:37: listen.allowed_hosts: must be a list, like [first, second]",
            "f.yaml:2:9: limits: must be a mapping of keys to values",
            "f.yaml:3:20: audit.arguments: must be true or false",
            "f.yaml:3:39: audit.max_days: must be a whole number",
            "f.yaml:4:20: timeouts.call_s: must be a number",
            "f.yaml:4:34: timeouts.list_s: must be a number",
            "f.yaml:5:18: servers.time.command: takes only the program; write `command: uvx`",
            "f.yaml:5:56: servers.time.tool_permissions.a: must be true or false",
        ],
    ),
    "values out of bounds": (
        "listen: {port: 70000}\nlimits: {sessions: 0}\ntimeouts: {call_s: 0, list_s: 100000}",
        [
            "f.yaml:1:16: listen.port: must be at most 65535",
            "f.yaml:2:20: limits.sessions: must be at least 1",
            "f.yaml:3:20: timeouts.call_s: must be more than 0",
            "f.yaml:3:31: timeouts.list_s: must be at most 86400",
        ],
    ),
    "a choice that does not exist": (
        "servers: {time: {command: uvx, era: modren}}\nprojects: {a: {optimization: vector}}",
        [
            "f.yaml:1:37: servers.time.era: must be `auto`, `legacy` or `modern` (did you mean `modern`?)",
            "f.yaml:2:30: projects.a.optimization: must be `bm25` or `cloud`, or `off`",
        ],
    ),
    "servers that cannot be reached": (
        """\
        servers:
          none: {name: None}
          empty:
          both:
            command: uvx
            url: https://a.example/mcp
          ftp: {url: "ftp://a.example"}
          hostless: {url: "https:///mcp"}
          wrong: {command: uvx, transport: sse}
          other: {url: "https://a.example", transport: stdio}
          headless: {command: uvx, headers: {A: b}}
          rootless: {url: "https://a.example", roots: {a: /b}}
        """,
        [
            "f.yaml:2:3: servers.none: needs exactly one of `bundled`, `command` and `url`, but has none of them",
            "f.yaml:3:3: servers.empty: needs exactly one of `bundled`, `command` and `url`, but has none of them",
            "f.yaml:4:3: servers.both: needs exactly one of `bundled`, `command` and `url`, but has `command`, `url`",
            f"f.yaml:7:14: servers.ftp.url: {ADDRESS}",
            f"f.yaml:8:19: servers.hostless.url: {ADDRESS}",
            "f.yaml:9:3: servers.wrong: `transport: sse` needs `url`",
            "f.yaml:10:3: servers.other: `transport: stdio` needs `command`",
            "f.yaml:11:3: servers.headless: `headers` needs a server with `url`, but this one has `command`",
            "f.yaml:12:3: servers.rootless: `roots` needs a server with `bundled`, but this one has `url`",
        ],
    ),
    "roots that no path could lead to": (
        'servers: {a: {bundled: archive, roots: {"a/b": /x, ..: /x, "": /x, app: "", "my app-1.2": .}}}',
        [
            f'f.yaml:1:41: servers.a.roots."a/b": {ROOT_NAME}',
            f'f.yaml:1:52: servers.a.roots."..": {ROOT_NAME}',
            f'f.yaml:1:60: servers.a.roots."": {ROOT_NAME}',
            "f.yaml:1:73: servers.a.roots.app: must not be empty",
        ],
    ),
    "ids": (
        "servers: {'.': {command: x}, '': {command: x}}\nprojects: {a__b: {}, 'a b': {}, UNASSIGNED_PROJECT_ID: {}}",
        [
            'f.yaml:1:11: servers.".": an id may contain letters, digits, `_` and `-`, but not `__`',
            'f.yaml:1:30: servers."": must not be empty',
            "f.yaml:2:12: projects.a__b: an id may contain letters, digits, `_` and `-`, but not `__`",
            'f.yaml:2:22: projects."a b": an id may contain letters, digits, `_` and `-`, but not `__`',
            "f.yaml:2:33: projects.UNASSIGNED_PROJECT_ID: is reserved for `no project`; choose another id",
        ],
    ),
    "prefixes": (
        "servers: {a: {command: x, prefix: 'a b'}, b: {command: x, prefix: 'b:'}, c: {command: x, prefix: c.__}}",
        [
            'f.yaml:1:35: servers.a.prefix: a prefix may contain letters, digits, `_`, `.` and `-`; "" means no prefix',
            'f.yaml:1:67: servers.b.prefix: a prefix may contain letters, digits, `_`, `.` and `-`; "" means no prefix',
        ],
    ),
    "names of nothing": (
        f"""\
        servers: {{time: {{command: uvx, projects: [research, reserch]}}}}
        projects: {{research: {{}}}}
        tokens:
          laptop:
            sha256: {HASH}
            projects: ["*", "", research, resaerch]
            servers: ["*", tme, ""]
        """,
        [
            "f.yaml:1:53: servers.time.projects[1]: no project `reserch` (did you mean `research`?)",
            "f.yaml:6:35: tokens.laptop.projects[3]: no project `resaerch` (did you mean `research`?)",
            "f.yaml:7:20: tokens.laptop.servers[1]: no server `tme` (did you mean `time`?)",
            "f.yaml:7:25: tokens.laptop.servers[2]: no server ``",
        ],
    ),
    "tokens": (
        f"""\
        tokens:
          a: {{sha256: {HASH}, expires: 2027-02-30}}
          b: {{sha256: {HASH.upper()}}}
          c: {{sha256: hunter2, expires: 2027}}
          d: {{projects: ["*"]}}
        """,
        [
            f"f.yaml:2:90: tokens.a.expires: {MOMENT}",
            "f.yaml:3:15: tokens.b.sha256: is the secret of token `a`, too; create a new one",
            "f.yaml:4:15: tokens.c.sha256: must be the SHA-256 of a token's secret, 64 hexadecimal digits; "
            "`pointsman token create` creates one",
            f"f.yaml:4:33: tokens.c.expires: {MOMENT}",
            "f.yaml:5:3: tokens.d.sha256: is missing",
        ],
    ),
    "references": (
        """\
        servers:
          time:
            command: uvx
            env:
              A: ${NOT_SET}
              B: ${file:/no/such/file}
              C: ${KEY
              D: ${not a name}
              E: ${KEY:-${KEY}}
              F: ${file:/dev/null}
        state:
          request_keys: ["${KEY}", "${SHORT}"]
        """,
        [
            "f.yaml:5:10: servers.time.env.A: the environment variable NOT_SET is not set; "
            "set it, or give a default with ${NOT_SET:-...}",
            "f.yaml:6:10: servers.time.env.B: /no/such/file cannot be read: No such file or directory; "
            "create it, or correct the path in ${file:...}",
            "f.yaml:7:10: servers.time.env.C: `${` is not closed; write a literal `${` as `$${`",
            "f.yaml:8:10: servers.time.env.D: `${...}` takes NAME, NAME:-default, file:/path, cmd:PROGRAM or "
            "keyring:NAME; write a literal `${` as `$${`",
            "f.yaml:9:10: servers.time.env.E: nested references are not supported",
            "f.yaml:10:10: servers.time.env.F: /dev/null is not a regular file",
            "f.yaml:12:28: state.request_keys[1]: has 5 bytes, but needs at least 32; try `openssl rand -hex 32`",
        ],
    ),
    "a client's block": (
        """\
        servers:
          time: {command: uvx}
        mcpServers:
          time: {command: uvx}
          a: {type: htpp, url: "https://a.example"}
          b: {type: http, transport: http, url: "https://a.example", disabled: perhaps}
          c: {type: sse, command: uvx}
          d: {command: uvx, alwaysAllowed: []}
          e: 5
        """,
        [
            "f.yaml:4:3: mcpServers.time: is also defined under `servers`; keep one of them",
            "f.yaml:5:13: mcpServers.a.type: must be `stdio`, `http`, `streamable-http` or `sse` "
            "(did you mean `http`?)",
            "f.yaml:6:7: mcpServers.b.type: means the same as `transport`; keep one of them",
            "f.yaml:6:72: mcpServers.b.disabled: must be true or false",
            "f.yaml:7:3: mcpServers.c: `transport: sse` needs `url`",
            "f.yaml:8:21: mcpServers.d.alwaysAllowed: unknown key (did you mean `alwaysAllow`?)",
            "f.yaml:9:6: mcpServers.e: must be a mapping of keys to values",
        ],
    ),
    "a client's block that is a list": (
        "mcpServers: [a]",
        ["f.yaml:1:1: mcpServers: is a list, but must be a mapping; write `a:` instead of `-`, and its keys below it"],
    ),
    "merged from elsewhere": (
        """\
        servers:
          a: &base {command: uvx, era: old}
          b: {<<: *base, args: [b]}
        """,
        [
            "f.yaml:2:32: servers.a.era: must be `auto`, `legacy` or `modern`",
            "f.yaml:2:32: servers.b.era: must be `auto`, `legacy` or `modern`",
        ],
    ),
    "the search service": (
        """\
        cloud_search:
          url: https://me:pass@search.example/?key=1
          token: "two words"
        """,
        [
            "f.yaml:2:8: cloud_search.url: must be a URL like https://host.example, without user, `?` and `#`",
            "f.yaml:3:10: cloud_search.token: must be one word of visible ASCII characters",
        ],
    ),
    "addresses of services": (
        """\
        cloud_search: {url: search.example, token: t}
        search_api:
          llm: {base_url: "https://llm.example/v1?version=2", model: m, key: "schlüssel"}
        """,
        [
            "f.yaml:1:21: cloud_search.url: must be a URL like https://host.example, without user, `?` and `#`",
            "f.yaml:3:19: search_api.llm.base_url: must be a URL like https://host.example, without user, `?` and `#`",
            "f.yaml:3:70: search_api.llm.key: must be one word of visible ASCII characters",
        ],
    ),
    "incomplete parts": (
        "cloud_search: {url: https://search.example}\nsearch_api: {llm: {model: m}}",
        [
            "f.yaml:1:1: cloud_search.token: is missing",
            "f.yaml:2:14: search_api.llm.base_url: is missing",
        ],
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_is_told_line_by_line(case: str) -> None:
    text, expected = BROKEN[case]
    with pytest.raises(ConfigError) as caught:
        parse(dedent(text), "f.yaml", {"KEY": "k" * 32, "SHORT": "short"})
    assert str(caught.value).splitlines() == expected


def test_a_value_from_outside_is_never_repeated() -> None:
    text = dedent(
        """\
        servers: {time: {command: uvx, era: "${SECRET}", projects: ["${SECRET}"]}}
        mcpServers: {a: {type: "${SECRET}", url: "${SECRET}"}}
        listen: {port: "${SECRET}"}
        projects: {hunter3: {}}
        """
    )
    with pytest.raises(ConfigError) as caught:
        parse(text, "f.yaml", {"SECRET": "hunter2"})
    assert len(caught.value.problems) == 5
    assert "hunter" not in str(caught.value)


@pytest.mark.no_cover
def test_of_thousands_of_problems_the_first_hundred_are_listed() -> None:
    """Each is looked up in the file, so listing all of them took time that grew with the square of their number."""
    text = "\n".join(f"k{number}: 1" for number in range(20_000))
    with pytest.raises(ConfigError) as error:
        parse(text, "f.yaml", {})
    assert len(error.value.problems) == 101
    assert "f.yaml:1:1: 19900 more problems not listed" in str(error.value)


BOMB_STEPS = 30  # three to that power entries, were the aliases written out


@pytest.mark.parametrize(
    ("first", "step"),
    [
        ("[x]", "[*{0}, *{0}, *{0}]"),
        ("{k: v}", "{{a: *{0}, b: *{0}, c: *{0}}}"),
        ("{k: v}", "{{<<: [*{0}, *{0}, *{0}]}}"),
    ],
    ids=["lists", "mappings", "merges"],
)
def test_aliases_that_multiply_are_refused_quickly(first: str, step: str) -> None:
    lines = [f"a0: &a0 {first}"]
    lines += [f"a{n}: &a{n} {step.format(f'a{n - 1}')}" for n in range(1, BOMB_STEPS)]
    lines.append(f"servers: *a{BOMB_STEPS - 1}")
    with pytest.raises(ConfigError, match="unknown key"):
        parse("\n".join(lines), "f.yaml", {})
