"""Asks commands (`${cmd:...}`) and keyrings (`${keyring:...}`) for secrets: within 5 s, each once until it changes."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from pointsman.config import keyring_program
from pointsman.config.yaml.references import KEYRING_SERVICE, SecretReadError, SecretReference

MAX_S = 5.0  # for one command
MAX_LOAD_S = 15.0  # for all commands of one load; who asked for a reload waits 20 s for it
MAX_BYTES = 65_536  # of its output
_POLL_S = 0.05  # between looks whether a program has ended whose output a child of it holds open
_REAP_S = 1.0  # for a killed program to end
_SHOWN_CHARS = 80
_SLOW = "if it asks for something, sign in to it first"


class SecretReader:
    """Fits `ReadsSecrets`. Keeps each value in memory until a loaded file no longer has its reference.

    One thread at a time.
    """

    def __init__(self, environ: Mapping[str, str], keyring_environ: Mapping[str, str]) -> None:
        """`environ` is all that commands get, `keyring_environ` what the program gets that asks the keyring."""
        self._environ = environ
        self._keyring_environ = keyring_environ
        self._values: dict[tuple[SecretReference, Path], str] = {}
        self._used: set[tuple[SecretReference, Path]] = set()
        self._stale: set[tuple[SecretReference, Path]] = set()
        self._deadline = float("inf")

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Around one load. If it succeeds, values that it has not used are dropped."""
        self._used = set()
        self._deadline = time.monotonic() + MAX_LOAD_S
        yield
        self._values = {key: value for key, value in self._values.items() if key in self._used}
        self._stale &= self._values.keys()

    def read_again(self) -> None:
        """Let the next load ask again for every value. One that cannot be read then stays known as it was."""
        self._stale = set(self._values)

    def read(self, reference: SecretReference, folder: Path) -> str:
        """Raises SecretReadError."""
        key = reference, folder
        if key not in self._values or key in self._stale:
            max_s = min(MAX_S, self._deadline - time.monotonic())
            if max_s <= 0:
                raise SecretReadError(
                    f"was not read: the commands and keyrings of this file took {MAX_LOAD_S:g} s together; "
                    "make them faster, or use ${file:PATH}"
                )
            asked = _ask_command if reference.kind == "cmd" else _ask_keyring
            environ = self._environ if reference.kind == "cmd" else self._keyring_environ
            self._values[key] = asked(reference.words, environ, folder, max_s)
            self._stale.discard(key)
        self._used.add(key)
        return self._values[key]


class Ended(NamedTuple):
    """How a program ended, and what it wrote to stdout."""

    code: int  # negative: the signal
    output: bytes


class TookTooLongError(Exception):
    """The program did not end in time and was killed."""


class TooMuchOutputError(Exception):
    """The program wrote too much and was killed."""


def run_bounded(
    argv: Sequence[str], environ: Mapping[str, str], folder: Path, max_s: float = MAX_S, stdin: bytes | None = None
) -> Ended:
    """Run a program without a shell, a terminal or stderr, in a process group that does not outlive it.

    Raises:
        TookTooLongError, TooMuchOutputError, OSError
    """
    deadline = time.monotonic() + max_s
    process = subprocess.Popen(  # noqa: S603 - what the owner wrote into the configuration, without a shell
        argv,
        stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # it may repeat the secret
        cwd=folder,
        env=dict(environ),
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        if process.stdin is not None:
            with suppress(BrokenPipeError), process.stdin:
                process.stdin.write(stdin or b"")  # less than a pipe holds
        output = _read_output(process, process.stdout.fileno(), deadline)
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.stdout.close()
        with suppress(subprocess.TimeoutExpired):  # another user's, such as sudo, cannot be killed
            process.wait(_REAP_S)
    return Ended(process.returncode, output)


def _read_output(process: subprocess.Popen[bytes], handle: int, deadline: float) -> bytes:
    """Read until the program ends; a child of it that keeps the pipe open is not waited for."""
    output = bytearray()
    os.set_blocking(handle, False)
    with selectors.DefaultSelector() as selector:
        selector.register(handle, selectors.EVENT_READ)
        is_open = True
        while is_open or process.poll() is None:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise TookTooLongError
            if not is_open:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(left_s)
                continue
            ended = process.poll() is not None  # before the last look at the pipe
            if selector.select(0 if ended else min(left_s, _POLL_S)):
                chunk = os.read(handle, MAX_BYTES)
                output += chunk
                is_open = bool(chunk)
            elif ended:
                break
            if len(output) > MAX_BYTES:
                raise TooMuchOutputError
    return bytes(output)


def _ask_command(words: Sequence[str], environ: Mapping[str, str], folder: Path, max_s: float) -> str:
    program = f"`{words[0][:_SHOWN_CHARS]}` of `${{cmd:...}}`"
    by_hand = "run the command in a terminal to see why"
    try:
        ended = run_bounded(words, environ, folder, max_s)
    except FileNotFoundError:
        raise SecretReadError(f"{program} was not found; install it, or write its full path") from None
    except PermissionError:
        raise SecretReadError(f"{program} may not be executed; make it executable with `chmod +x`") from None
    except (OSError, ValueError):
        raise SecretReadError(f"{program} could not be started; {by_hand}") from None
    except TookTooLongError:
        reason = f"did not end within {max_s:.0f} s{_budget(max_s)} and was killed; {_SLOW}"
        raise SecretReadError(f"{program} {reason}") from None
    except TooMuchOutputError:
        reason = f"printed more than {MAX_BYTES} bytes and was killed; it must print the secret and nothing else"
        raise SecretReadError(f"{program} {reason}") from None
    if ended.code:
        how = f"exit code {ended.code}" if ended.code > 0 else f"signal {-ended.code}"
        raise SecretReadError(f"{program} failed with {how}; {by_hand}")
    return _as_text(ended.output, program, by_hand)


def _ask_keyring(words: Sequence[str], environ: Mapping[str, str], folder: Path, max_s: float) -> str:
    service, name = words
    entry = f"the keyring's entry `{name[:_SHOWN_CHARS]}` of `{service[:_SHOWN_CHARS]}`"
    try:
        ended = run_bounded(keyring_argv("get", service, name), environ, folder, max_s)
    except TookTooLongError:
        limit = f"{max_s:.0f} s{_budget(max_s)}"
        reason = f"could not be read within {limit}; the keyring may wait for its password: unlock it first"
        raise SecretReadError(f"{entry} {reason}") from None
    except TooMuchOutputError:
        raise SecretReadError(f"{entry} has more than {MAX_BYTES} bytes; store a shorter secret") from None
    except OSError:
        raise SecretReadError(f"{entry} could not be read: {sys.executable} cannot be started") from None
    if ended.code == keyring_program.MISSING:
        stores = f"`pointsman secret set {name}`" if service == KEYRING_SERVICE else "the program that it belongs to"
        raise SecretReadError(f"{entry} does not exist; {stores} stores it")
    if ended.code:
        raise SecretReadError(f"{entry} could not be read: {keyring_failure(ended.code)}")
    return _as_text(ended.output, entry, "store it again")


def _budget(max_s: float) -> str:
    """Where less than the usual time was left."""
    return (
        f", what was left of the {MAX_LOAD_S:g} s for all commands and keyrings of this file," if max_s < MAX_S else ""
    )


def keyring_argv(*words: str) -> list[str]:
    """Our program that asks the keyring: a backend may wait for a person, and no thread can be stopped."""
    return [sys.executable, "-P", "-m", keyring_program.__name__, *words]


def keyring_failure(code: int) -> str:
    """Why the program failed, with the next step."""
    return {
        keyring_program.NO_BACKEND: "this user has no keyring that works here; start a Secret Service such as "
        "gnome-keyring, name another backend in PYTHON_KEYRING_BACKEND (one that stores plain text is used only if "
        "it is named there), or use ${file:PATH}",
        keyring_program.LOCKED: "the keyring is locked; unlock it, and save the configuration again",
    }.get(code, "the keyring failed; `python -m keyring --list-backends` shows which one is used")


def _as_text(output: bytes, source: str, next_step: str) -> str:
    try:
        text = output.decode().rstrip("\r\n")  # as `${file:...}`
    except UnicodeDecodeError:
        raise SecretReadError(f"{source} is not UTF-8 text; {next_step}") from None
    if not text:
        raise SecretReadError(f"{source} gave an empty text; {next_step}")
    return text
