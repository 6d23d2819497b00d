"""Makes this process non-dumpable: other processes of the same user cannot read its memory or environment."""

from __future__ import annotations

_PR_SET_DUMPABLE = 4


def make_non_dumpable() -> bool:
    """Deny /proc/<pid>/environ, /proc/<pid>/mem and ptrace to everyone without CAP_SYS_PTRACE.

    The kernel resets the flag at exec, so each program sets its own. False: this system has no prctl.
    """
    try:
        import ctypes

        prctl = ctypes.CDLL(None).prctl
    except (ImportError, OSError, AttributeError):
        return False
    return bool(prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) == 0)
