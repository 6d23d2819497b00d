"""References to commands and keyrings: when they are asked, within which bounds, and what an error says."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pointsman.config import keyring_program, secret_reader
from pointsman.config.edits import add_server, enable_server
from pointsman.config.errors import ConfigError
from pointsman.config.loader import examine, load, load_state, load_tokens, parse
from pointsman.config.mask import mask_config
from pointsman.config.model import GatewayConfig
from pointsman.config.secret_reader import MAX_BYTES, SecretReader
from pointsman.config.secrets import holds_secret
from pointsman.config.yaml.references import SecretReadError, SecretReference, secret_references
from pointsman.router.cli.common.secret_environment import keyring_environment
from pointsman.router.cli.common.secret_environment import secret_reader as reader_of

SECRET = "s3cret-of-the-tracker"
HASH = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"


class File:
    """A configuration with one remote server, whose header is `value`; the command counts its runs in a file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "pointsman.yaml"
        self.counter = folder / "runs"
        self.script = folder / "secret.sh"
        self.script.write_text(f"#!/bin/sh\necho run >> {shlex.quote(str(self.counter))}\necho {SECRET}\n")
        self.script.chmod(0o755)
        self.reader = reader_of(os.environ)

    @property
    def runs(self) -> int:
        return len(self.counter.read_text().splitlines()) if self.counter.exists() else 0

    def write(self, value: str, more: str = "") -> None:
        header = '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        self.path.write_text(
            "servers:\n  tracker:\n    url: https://tracker.example/mcp\n"
            f"    headers: {{Authorization: {header}}}\n{more}"
        )

    def load(self, **options: Any) -> GatewayConfig:
        return load(self.path, os.environ, secrets=self.reader, **options)


@pytest.fixture
def file(tmp_path: Path) -> File:
    return File(tmp_path)


def _header(config: GatewayConfig, server_id: str = "tracker") -> str:
    return config.servers[server_id].headers["Authorization"].get_secret_value()


def _problem(file: File) -> str:
    with pytest.raises(ConfigError) as raised:
        file.load()
    (problem,) = raised.value.problems
    assert problem.key == "servers.tracker.headers.Authorization"
    return problem.reason


# ------------------------------------------------------------------ when a command runs


def test_a_command_is_part_of_a_value_and_its_final_line_break_is_not(file: File) -> None:
    file.write("Bearer ${cmd:./secret.sh}")
    assert _header(file.load()) == f"Bearer {SECRET}"


def test_a_reload_runs_only_the_command_whose_text_has_changed(file: File) -> None:
    file.write("Bearer ${cmd:./secret.sh}")
    file.load()
    file.write("Bearer ${cmd:./secret.sh}", "limits: {calls: 5}\n")
    assert _header(file.load()) == f"Bearer {SECRET}"
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
    assert _header(config) == _header(config, "other") == SECRET
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
    assert "failed" in _problem(file)
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
    assert _header(config, "other") == SECRET
    assert SECRET not in _header(config)
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
    assert _header(file.load()) == "./secret.sh"
    assert file.runs == 0


def test_a_literal_is_no_command(file: File) -> None:
    file.write("$${cmd:./secret.sh}")
    assert _header(file.load()) == "${cmd:./secret.sh}"
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
    told = _header(file.load())
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
    told = _problem(file)
    assert reason in told
    assert "leaked" not in told


def test_a_command_may_print_as_much_as_the_limit(file: File) -> None:
    file.write(_python(f"print('x' * {MAX_BYTES}, end='')"))
    assert len(_header(file.load())) == MAX_BYTES


def test_a_command_that_floods_is_killed(file: File) -> None:
    file.write("${cmd:yes leaked-out}")
    assert f"more than {MAX_BYTES} bytes" in _problem(file)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret_reader, "MAX_S", 0.5)


@pytest.mark.usefixtures("soon")
def test_a_command_that_hangs_is_killed_with_its_children(file: File) -> None:
    pids = file.folder / "pids"
    file.write(
        _python(f"import os, time; os.fork(); open({str(pids)!r}, 'a').write(str(os.getpid()) + ' '); time.sleep(600)")
    )
    assert "did not end within" in _problem(file)
    assert pids.read_text().split()
    for pid in pids.read_text().split():
        _wait_for_end(int(pid))


@pytest.mark.usefixtures("soon")
def test_a_command_that_closes_its_output_and_hangs_is_killed(file: File) -> None:
    file.write(_python("import os, time; os.close(1); time.sleep(600)"))
    assert "did not end within" in _problem(file)


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
        assert _header(file.load()) == SECRET
    finally:
        child = int(pid.read_text())
        if leave != "pass":  # it has left the group
            os.kill(child, 9)
    _wait_for_end(child)


def test_all_commands_of_a_load_have_one_deadline(file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret_reader, "MAX_LOAD_S", 0.0)
    file.write("${cmd:./secret.sh}")
    assert "took 0 s together" in _problem(file)
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


# ------------------------------------------------------------------ keyrings, with real backends


BACKENDS = """
import time
from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked

class Locked(KeyringBackend):
    priority = 1
    def set_password(self, service, username, password):
        raise KeyringLocked("leaked-out")
    def get_password(self, service, username):
        raise KeyringLocked("leaked-out")

class Waiting(Locked):
    def get_password(self, service, username):
        open(__file__ + ".asked", "w").close()
        time.sleep(600)

class Broken(Locked):
    def get_password(self, service, username):
        print("leaked-out")
        open(__file__ + ".asked", "w").close()
        raise RuntimeError("leaked-out")
"""


def _environment(folder: Path, backend: str) -> dict[str, str]:
    """Of a user whose keyring is `backend`, and is kept in `folder`."""
    settings = folder / "config" / "python_keyring"
    settings.mkdir(parents=True)
    (settings / "keyringrc.cfg").write_text(f"[backend]\nkeyring-path={folder}\ndefault-keyring={backend}\n")
    (folder / "own_backends.py").write_text(BACKENDS)
    own = {"XDG_CONFIG_HOME": str(folder / "config"), "XDG_DATA_HOME": str(folder / "data")}
    by_name = {} if backend.startswith("own_") else {"PYTHON_KEYRING_BACKEND": backend}
    return {**os.environ, **own, **by_name}


def _store(environ: Mapping[str, str], service: str, name: str, secret: str) -> int:
    argv = secret_reader.keyring_argv("set", service, name)
    return secret_reader.run_bounded(argv, keyring_environment(environ), Path("/"), 60, stdin=secret.encode()).code


def test_a_secret_comes_from_the_keyring_of_the_user(file: File) -> None:
    environ = _environment(file.folder, "keyrings.alt.file.PlaintextKeyring")
    assert _store(environ, "pointsman", "tracker", SECRET) == 0
    assert _store(environ, "https://api.example/v1", "ann", "anns-own\n") == 0
    file.reader = reader_of(environ)
    file.write("Bearer ${keyring:tracker} ${keyring:https://api.example/v1/ann}")
    assert _header(file.load()) == f"Bearer {SECRET} anns-own"


def test_a_keyring_that_stores_plain_text_is_used_only_if_it_is_named(file: File) -> None:
    environ = _environment(file.folder, "keyrings.alt.file.PlaintextKeyring")
    environ.pop("PYTHON_KEYRING_BACKEND")
    (file.folder / "config" / "python_keyring" / "keyringrc.cfg").unlink()
    environ["DBUS_SESSION_BUS_ADDRESS"] = "unix:path=/nowhere"  # no other keyring of whoever runs the test
    assert _store(environ, "pointsman", "tracker", SECRET) == keyring_program.NO_BACKEND
    assert not (file.folder / "data").exists()


@pytest.mark.parametrize(
    ("backend", "reason"),
    [
        ("keyring.backends.null.Keyring", "does not exist; `pointsman secret set tracker` stores it"),
        ("keyring.backends.fail.Keyring", "no keyring that works here"),
        ("own_backends.Locked", "is locked; unlock it"),
        ("own_backends.Broken", "the keyring failed"),
    ],
)
def test_a_keyring_without_the_secret_says_why(file: File, backend: str, reason: str) -> None:
    file.reader = reader_of(_environment(file.folder, backend))
    file.write("${keyring:tracker}")
    told = _problem(file)
    assert reason in told
    assert "leaked" not in told


def test_a_keyring_that_waits_for_a_person_is_not_waited_for(file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret_reader, "MAX_S", 3.0)
    file.reader = reader_of(_environment(file.folder, "own_backends.Waiting"))
    file.write("${keyring:tracker}")
    assert "unlock it first" in _problem(file)
    assert (file.folder / "own_backends.py.asked").exists()


@pytest.mark.parametrize("text", ["", "/", "service/", "/name"])
def test_a_keyring_entry_has_a_name(file: File, text: str) -> None:
    file.write(f"${{keyring:{text}}}")
    assert "takes NAME or SERVICE/NAME" in _problem(file)


def test_a_missing_package_is_said_before_anything_is_asked(file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    file.write("${keyring:tracker}")
    with pytest.raises(ConfigError, match=r"pointsman\[keyring\]"):
        load(file.path, os.environ)


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
    assert "there is no shell" in _problem(file)


def test_a_quoted_operator_is_an_argument(file: File) -> None:
    file.write("${cmd:printf %s '|'}")
    assert _header(file.load()) == "|"


def test_a_command_that_gets_less_than_its_time_is_told_of_the_budget(
    file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secret_reader, "MAX_LOAD_S", 0.3)
    file.write("${cmd:sleep 60}")
    assert "what was left of the 0.3 s for all commands" in _problem(file)
