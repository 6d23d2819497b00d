"""Reads or stores one secret of the keyring, as a program of its own: `get SERVICE NAME` or `set SERVICE NAME`.

`get` writes the secret to stdout; `set` reads it from stdin and writes the name of the backend that has it now. The
exit code says what failed. A backend that stores plain text is used only if the user has named it.
"""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

MISSING, NO_BACKEND, LOCKED, FAILED = 3, 4, 5, 6
UNENCRYPTED = frozenset({"keyrings.alt.file.PlaintextKeyring"})


def main(action: str, service: str, name: str) -> int:
    """Returns the exit code."""
    try:
        from keyring import errors
    except ImportError:
        return NO_BACKEND
    try:
        with redirect_stdout(sys.stderr):  # a backend may print there
            backend = _backend()
            if action == "set":
                backend.set_password(service, name, sys.stdin.buffer.read().decode())
            secret = backend.get_password(service, name) if action == "get" else name_of(backend)
    except (errors.NoKeyringError, errors.InitError):
        return NO_BACKEND
    except errors.KeyringLocked:
        return LOCKED
    except Exception:  # of any backend; its message may name the secret
        return FAILED
    if secret is None:
        return MISSING
    sys.stdout.buffer.write(secret.encode())
    sys.stdout.buffer.flush()
    return 0


def _backend() -> KeyringBackend:
    """The keyring that the user has named, or else the best one that is not known to store plain text."""
    from keyring import core

    core.init_backend(lambda one: name_of(one) not in UNENCRYPTED)
    return core.get_keyring()


def name_of(backend: KeyringBackend) -> str:
    """As in PYTHON_KEYRING_BACKEND. Of several together, the first, which takes what is stored."""
    from keyring.backends.chainer import ChainerBackend

    if isinstance(backend, ChainerBackend):
        return next((name_of(one) for one in backend.backends), "no keyring")
    return f"{type(backend).__module__}.{type(backend).__name__}"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))
