"""References to commands and keyrings: when they are asked, within which bounds, and what an error says."""

from __future__ import annotations

import os
import shlex
import sys
import time
from pathlib import Path

import pytest

from pointsman.config import secret_reader
from pointsman.config.edits import add_server, enable_server
from pointsman.config.errors import ConfigError
from pointsman.config.loader import examine, load, load_state, load_tokens, parse
from pointsman.config.mask import mask_config
from pointsman.config.secret_reader import MAX_BYTES, SecretReader
from pointsman.config.secrets import holds_secret
from pointsman.config.yaml.references import SecretReadError, SecretReference, secret_references
from pointsman.router.cli.common.secret_environment import secret_reader as reader_of
from tests.config.secret_file import HASH, SECRET, File, header_of, problem_in


@pytest.fixture
def file(tmp_path: Path) -> File:
    return File(tmp_path)


# ------------------------------------------------------------------ when a command runs


def test_a_command_is_part_of_a_value_and_its_final_line_break_is_not(file: File) -> None:
    file.write("Bearer ${cmd:./secret.sh}")
    assert header_of(file.load()) == f"Bearer {SECRET}"


def test_a_reload_runs_only_the_command_whose_text_has_changed(file: File) -> None:
    file.write("Bearer ${cmd:./secret.sh}")
    file.load()
    file.write("Bearer ${cmd:./secret.sh}", "limits: {calls: 5}\n")
    assert header_of(file.load()) == f"Bearer {SECRET}"
    assert file.runs == 1
    file.write("Bearer ${cmd:./secret.sh again}")
    file.load()
    assert file.runs == 2
    file.write("Bearer none")
    file.load()
    file.write("Bearer ${cmd:./secret.sh again}")
    file.load()
    assert file.runs == 3  # its value was dropped with its reference


def test_a_command_that_several_values_name_runs_once(file: File) -> None:
    file.write(
        "${cmd:./secret.sh}", "  other: {url: https://o.example/mcp, headers: {Authorization: '${cmd:./secret.sh}'}}\n"
    )
    config = file.load()
    assert header_of(config) == header_of(config, "other") == SECRET
    assert file.runs == 1


def test_values_are_read_again_when_asked_for_and_stay_if_that_fails(file: File) -> None:
    file.write("${cmd:./secret.sh}")
    file.load()
    file.reader.read_again()
    file.load()
    file.load()
    assert file.runs == 2
    file.reader.read_again()
    good = file.script.read_text()
    file.script.write_text("#!/bin/sh\nexit 1\n")
    assert "failed" in problem_in(file)
    file.script.write_text(good)
    file.load()
    assert file.runs == 3


def test_no_command_runs_from_a_file_with_a_mistake_elsewhere(file: File) -> None:
    file.write("${cmd:./secret.sh}", "limits: {calls: many}\n")
    with pytest.raises(ConfigError, match=r"limits\.calls"):
        file.load()
    assert file.runs == 0


def test_what_only_looks_runs_nothing(file: File) -> None:
    file.write("${cmd:./secret.sh}", f"tokens: {{laptop: {{sha256: {HASH}}}}}\n")
    text = file.path.read_text()
    load(file.path, os.environ)
    parse(text, str(file.path), os.environ)
    shown = examine(text, str(file.path), os.environ)
    assert mask_config(shown.config, shown.external_texts)["servers"]["tracker"]["headers"] == {
        "Authorization": "********"
    }
    load_tokens(file.path, os.environ)
    load_state(file.path, os.environ)
    enable_server(file.path, "tracker", False, os.environ)
    enable_server(file.path, "tracker", True, os.environ)
    add_server(file.path, "other", {"url": "https://other.example/mcp"}, os.environ)
    assert file.runs == 0
    assert "${cmd:./secret.sh}" in file.path.read_text()


def test_what_only_looks_names_the_keys_that_it_has_not_read(file: File) -> None:
    file.write("${cmd:./secret.sh}")
    key = "servers.tracker.headers.Authorization"
    looked = load(file.path, os.environ)
    assert looked.unread_secrets("servers.tracker") == looked.unread_secrets(key) == (key,)
    assert looked.unread_secrets("servers.track", "state.database") == ()
    assert file.load().unread_secrets("servers.tracker") == ()


@pytest.mark.parametrize(
    "more",
    [
        "  a: {url: '${cmd:./secret.sh}'}\n",
        "  a: {url: 'https://${cmd:./secret.sh}.example/mcp'}\n",
        "  a: {command: uvx, args: ['--key=${cmd:./secret.sh}'], env: {KEY: '${cmd:./secret.sh}'}}\n",
        "cloud_search: {url: 'https://s.example', token: '${cmd:./secret.sh}'}\n",
        "state: {request_keys: ['${cmd:./secret.sh}']}\n",
        "state: {database: '${cmd:./secret.sh}', request_keys: ['${cmd:./secret.sh}']}\n",
        "state: {database: 'postgresql://u:${cmd:./secret.sh}@db/x', request_keys: ['${cmd:./secret.sh}']}\n",
    ],
)
def test_a_file_is_valid_without_the_value_wherever_a_secret_is_usual(file: File, more: str) -> None:
    file.write("x", more)
    load(file.path, os.environ)
    assert file.runs == 0


def test_the_commands_of_a_disabled_server_do_not_run(file: File) -> None:
    file.write("${cmd:./secret.sh}", "    enabled: false\n")
    assert not file.load().servers["tracker"].enabled
    assert file.runs == 0


def test_a_trial_runs_the_commands_of_its_server_only(file: File) -> None:
    file.write(
        "${cmd:./secret.sh}",
        "  other: {url: https://o.example/mcp, headers: {Authorization: '${cmd:./secret.sh x}'}}\n",
    )
    config = file.load(tried="other")
    assert header_of(config, "other") == SECRET
    assert SECRET not in header_of(config)
    assert file.runs == 1


def test_an_address_of_a_database_is_not_guessed_by_commands(file: File) -> None:
    file.write("x", "state: {database: '${cmd:./secret.sh}', request_keys: ['0123456789012345678901234567890123']}\n")
    with pytest.raises(ConfigError, match="POINTSMAN_DATABASE"):
        load_state(file.path, os.environ)
    assert file.runs == 0


# ------------------------------------------------------------------ where it is refused


@pytest.mark.parametrize("reference", ["${cmd:./secret.sh}", "${keyring:tracker}"])
@pytest.mark.parametrize(
    "text",
    [
        '{"mcpServers": {"t": {"url": "https://t.example/mcp", "headers": {"A": "REFERENCE"}}}}',
        '{"servers": {"t": {"type": "http", "url": "https://t.example/mcp", "headers": {"A": "Bearer REFERENCE"}}}}',
        'servers: {t: {serverUrl: "https://t.example/REFERENCE"}}',
        'mcpServers: {t: {command: npx, args: [x, "REFERENCE"]}}',
    ],
)
def test_a_clients_block_cannot_have_it(file: File, text: str, reference: str) -> None:
    file.path.write_text(text.replace("REFERENCE", reference))
    with pytest.raises(ConfigError, match="not read from a client's block"):
        file.load()
    assert file.runs == 0


@pytest.mark.parametrize(
    "text",
    [
        f"tokens: {{a: {{sha256: '${{cmd:echo {HASH}}}'}}}}",
        "listen: {host: '${cmd:echo 127.0.0.1}'}",
        "projects: {a: {name: '${cmd:echo a}'}}",
    ],
)
def test_sections_that_every_command_reads_cannot_have_it(file: File, text: str) -> None:
    file.path.write_text(text)
    with pytest.raises(ConfigError, match=r"takes no `\$\{cmd:\.\.\.\}`|SHA-256"):
        file.load()


def test_the_variable_cmd_with_a_default_is_a_variable(file: File) -> None:
    file.write("${cmd:-./secret.sh}")
    assert header_of(file.load()) == "./secret.sh"
    assert file.runs == 0


def test_a_literal_is_no_command(file: File) -> None:
    file.write("$${cmd:./secret.sh}")
    assert header_of(file.load()) == "${cmd:./secret.sh}"
    assert list(secret_references("$${cmd:a} ${cmd:b c} ${NAME} ${keyring:d} ${cmd:-e}")) == [
        "${cmd:b c}",
        "${keyring:d}",
    ]


# ------------------------------------------------------------------ how a command runs


def _python(code: str) -> str:
    """A command that runs `code`, which has no brace."""
    return "${cmd:" + shlex.join([sys.executable, "-S", "-c", code]) + "}"


def test_a_command_gets_no_shell_no_input_and_no_variables_of_ours(file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("POINTSMAN_TOKEN", "TRACKER_TOKEN", "AWS_SECRET_ACCESS_KEY", "KEYRING_PROPERTY_KEYRING_KEY"):
        monkeypatch.setenv(name, "gateways-own")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1")
    file.reader = reader_of(os.environ)
    code = "import os, sys; print(sys.argv[1], sys.stdin.read() == '', os.getcwd(), sorted(os.environ.items()))"
    file.write("${cmd:" + shlex.join([sys.executable, "-S", "-c", code, "$HOME;`id`|x"]) + "}")
    told = header_of(file.load())
    assert told.startswith(f"$HOME;`id`|x True {file.folder}")
    assert "gateways-own" not in told
    assert "/run/user/1" in told


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("${cmd:no-such-program-here x}", "was not found"),
        ("${cmd:./pointsman.yaml}", "may not be executed"),
        ("${cmd:}", "names no program"),
        ("${cmd:echo 'open}", "quote"),
        (_python("import sys; print('leaked-out'); print('leaked-err', file=sys.stderr); sys.exit(7)"), "exit code 7"),
        (_python("import os; print('leaked-out', flush=True); os.kill(os.getpid(), 9)"), "signal 9"),
        (_python("pass"), "empty text"),
        (_python("import os; os.write(1, bytes([255, 254]))"), "not UTF-8"),
        (_python("print('leaked-out' * 10000)"), f"more than {MAX_BYTES} bytes"),
        (_python("print('leaked-out'); print('second')"), "must be one line"),
        (_python("print('leaked-out' + chr(0))"), "null character"),
    ],
)
def test_a_failure_names_the_reason_and_repeats_no_output(file: File, value: str, reason: str) -> None:
    file.write(value)
    told = problem_in(file)
    assert reason in told
    assert "leaked" not in told


def test_a_command_may_print_as_much_as_the_limit(file: File) -> None:
    file.write(_python(f"print('x' * {MAX_BYTES}, end='')"))
    assert len(header_of(file.load())) == MAX_BYTES


def test_a_command_that_floods_is_killed(file: File) -> None:
    file.write("${cmd:yes leaked-out}")
    assert f"more than {MAX_BYTES} bytes" in problem_in(file)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret_reader, "MAX_S", 0.5)


@pytest.mark.usefixtures("soon")
def test_a_command_that_hangs_is_killed_with_its_children(file: File) -> None:
    pids = file.folder / "pids"
    file.write(
        _python(f"import os, time; os.fork(); open({str(pids)!r}, 'a').write(str(os.getpid()) + ' '); time.sleep(600)")
    )
    assert "did not end within" in problem_in(file)
    assert pids.read_text().split()
    for pid in pids.read_text().split():
        _wait_for_end(int(pid))


@pytest.mark.usefixtures("soon")
def test_a_command_that_closes_its_output_and_hangs_is_killed(file: File) -> None:
    file.write(_python("import os, time; os.close(1); time.sleep(600)"))
    assert "did not end within" in problem_in(file)


@pytest.mark.parametrize("leave", ["pass", "os.setsid()"])
def test_a_child_that_keeps_the_output_open_is_not_waited_for(file: File, leave: str) -> None:
    pid = file.folder / "pid"
    code = f"""import os, time
print({SECRET!r}, flush=True)
r, w = os.pipe()
if os.fork() == 0:
    {leave}
    open({str(pid)!r}, 'w').write(str(os.getpid()))
    os.write(w, b'x')
    time.sleep(600)
os.read(r, 1)
"""
    script = file.folder / "forks.py"
    script.write_text(code)
    file.write("${cmd:" + shlex.join([sys.executable, "-S", str(script)]) + "}")
    try:
        assert header_of(file.load()) == SECRET
    finally:
        child = int(pid.read_text())
        if leave != "pass":  # it has left the group
            os.kill(child, 9)
    _wait_for_end(child)


def test_all_commands_of_a_load_have_one_deadline(file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret_reader, "MAX_LOAD_S", 0.0)
    file.write("${cmd:./secret.sh}")
    assert "took 0 s together" in problem_in(file)
    assert file.runs == 0


def _wait_for_end(pid: int) -> None:
    """A killed process that nobody has reaped yet counts as ended."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return
        if state in ("Z", "X"):
            return
        time.sleep(0.01)
    raise AssertionError(f"process {pid} still runs")


def test_a_reader_fits_any_folder(tmp_path: Path) -> None:
    with pytest.raises(SecretReadError, match=r"could not be started|was not found"):
        SecretReader({}, {}).read(SecretReference("cmd", ("./secret.sh",)), tmp_path / "missing")


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("Authorization: Bearer ${cmd:security find-generic-password -w tracker}", False),
        ("Authorization: Bearer ${keyring:my service/tracker-of-mine}", False),
        ("key: ${cmd:curl -u x password=opensesame}", True),
    ],
)
def test_a_reference_is_no_secret_unless_its_command_has_one(text: str, held: bool) -> None:
    assert holds_secret(text) is held


@pytest.mark.parametrize("text", ["${cmd:pass show x | head -1}", "${cmd:a && b}", "${cmd:cat < x}"])
def test_a_command_with_a_shells_operator_is_told_that_there_is_no_shell(file: File, text: str) -> None:
    file.write(text)
    assert "there is no shell" in problem_in(file)


def test_a_quoted_operator_is_an_argument(file: File) -> None:
    file.write("${cmd:printf %s '|'}")
    assert header_of(file.load()) == "|"


def test_a_command_that_gets_less_than_its_time_is_told_of_the_budget(
    file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secret_reader, "MAX_LOAD_S", 0.3)
    file.write("${cmd:sleep 60}")
    assert "what was left of the 0.3 s for all commands" in problem_in(file)
