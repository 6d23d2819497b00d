"""Reads or stores one secret of the keyring, as a program of its own: `get SERVICE NAME` or `set SERVICE NAME`.

`get` writes the secret to stdout, `set` reads it from stdin. The exit code says what failed.
"""

from __future__ import annotations

import sys
from contextlib import redirect_stdout

MISSING, NO_BACKEND, LOCKED, FAILED = 3, 4, 5, 6


def main(action: str, service: str, name: str) -> int:
    """Returns the exit code."""
    try:
        import keyring
        from keyring import errors
    except ImportError:
        return NO_BACKEND
    try:
        with redirect_stdout(sys.stderr):  # a backend may print there
            if action == "set":
                keyring.set_password(service, name, sys.stdin.buffer.read().decode())
                return 0
            secret = keyring.get_password(service, name)
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


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))
