"""Of all that a dying child writes, the line that says why."""

from __future__ import annotations

import itertools
import time

import pytest

from pointsman.router.downstream.repeated_failures import LONGEST_DISTANCE_S, RepeatedFailures
from pointsman.router.downstream.stderr_log import StderrLog, cause_of

UV = """  \u00d7 Failed to fetch: `https://index.example/simple/mcp-server-time/`
  ├─▶ Request failed after 3 retries
  ├─▶ client error (Connect)
  ╰─▶ invalid peer certificate: UnknownIssuer
hint: Consider enabling use of system TLS certificates with the `--native-tls` command-line flag
"""
UV_OLD = """error: Failed to install `mcp-server-time`
  Caused by: client error (Connect)
  Caused by: invalid peer certificate: UnknownIssuer
"""
UV_NEW = """warning: No valid certificates found in `SSL_CERT_FILE`: /empty.pem.
error: Failed to fetch: https://index.example/simple/mcp-server-time/
  cause: error sending request for url (https://index.example/simple/mcp-server-time/)
  cause: invalid peer certificate: UnknownIssuer
"""
NPM = """npm error code E404
npm error 404 Not Found - GET https://registry.example/mcp-nothing - Not found
npm error A complete log of this run can be found in: /home/me/.npm/_logs/x.log
"""
PYTHON = """INFO starting
Traceback (most recent call last):
  File "/srv/errors.py", line 1, in <module>
    raise ValueError("KEY is not set")
ValueError: KEY is not set
"""
NODE = """node:internal/modules/cjs/loader:1228
  throw err;
  ^

Error: Cannot find module 'left-pad'
    at Module._resolveFilename (node:internal/modules/cjs/loader:1225:15)
Node.js v20.1.0
"""


@pytest.mark.parametrize(
    ("written", "cause"),
    [
        (
            UV,
            "Failed to fetch: `https://index.example/simple/mcp-server-time/`: invalid peer certificate: UnknownIssuer",
        ),
        (UV_OLD, "error: Failed to install `mcp-server-time`: invalid peer certificate: UnknownIssuer"),
        (
            UV_NEW,
            "error: Failed to fetch: https://index.example/simple/mcp-server-time/: "
            "invalid peer certificate: UnknownIssuer",
        ),
        (NPM, "npm error 404 Not Found - GET https://registry.example/mcp-nothing - Not found"),
        (PYTHON, "ValueError: KEY is not set"),
        (NODE, "Error: Cannot find module 'left-pad'"),
        ("server 1.0\nbye\n", "bye"),
        ("hint: an error is likely\n", "hint: an error is likely"),
        ("sh: 1: nothing: not found\n", "sh: 1: nothing: not found"),
        ("", ""),
        ("\n \n", ""),
        ("error: https://anna:geheim@index.example/simple\n", "error: https***index.example/simple"),
    ],
)
def test_the_line_that_says_why(written: str, cause: str) -> None:
    assert cause_of(written.encode()) == cause


def test_only_what_this_child_wrote_counts() -> None:
    log = StderrLog()
    log.feed(b"error: the one before\n")
    since = log.total
    assert log.cause(since) == ""
    log.feed(b"error: this one\nhint: x\n")
    assert log.cause(since) == "error: this one"


@pytest.mark.parametrize(
    "written", [b"x\n" * 32_768, b"\n" * 65_536, b"error" * 13_000, b"a." * 32_768, b"\xe2\x94\x9c" * 20_000]
)
def test_a_flood_costs_little(written: bytes) -> None:
    began = time.process_time()
    assert len(cause_of(written)) <= 501
    assert time.process_time() - began < 2  # a bound against a search that is not linear


def test_distances_grow_up_to_a_bound_and_the_number_of_failures_kept_is_bounded() -> None:
    now = 0.0
    failures = RepeatedFailures(lambda: now)
    logged = []
    for _ in range(3 * 24 * 60):
        if failures.count("pid 17 fell") is not None:
            logged.append(now)
        now += 60
    gaps = [later - earlier for earlier, later in itertools.pairwise(logged)]
    assert gaps == sorted(gaps)
    assert gaps[0] == 60
    assert gaps[-1] == LONGEST_DISTANCE_S
    for number in range(1000):
        assert failures.count("f" * number + "x") == 1
    assert len(failures._seen) <= 16
