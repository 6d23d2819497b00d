"""Opens a link in a browser on this machine, if there is one that a person can see."""

from __future__ import annotations

import os
import sys


def has_screen() -> bool:
    """A text browser would take the terminal, and a browser of another machine cannot use the link."""
    if not sys.stdout.isatty() or os.environ.get("SSH_CONNECTION"):
        return False
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def opened(url: str) -> bool:
    import webbrowser

    return webbrowser.open(url)
