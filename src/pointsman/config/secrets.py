"""Secrets: how those of tokens are created and stored, and what secrets look like inside a text."""

from __future__ import annotations

import hashlib
import re
import secrets

PREFIX = "ptm_"  # so that secret scanners recognise a leaked token
MASK = "***"  # replaces a secret inside a text

# Every alternative starts with a literal and repeats one class at a time, so the search stays linear.
SECRET = re.compile(
    r"ptm_[A-Za-z0-9_-]*"
    r"|[Bb]earer\s+[^\s\"']{8,}"
    r"|\bsk-[A-Za-z0-9_-]{16,}"
    r"|gh[pousr]_[A-Za-z0-9]{20,}"
    r"|github_pat_[A-Za-z0-9_]{20,}"
    r"|xox[abprs]-[A-Za-z0-9-]{10,}"
    r"|AKIA[0-9A-Z]{16}"
    r"|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?"
    r"|-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[^-]*(?:-----END [A-Z ]{0,40}-----)?"
    r"|(?i:password|passwd|secret|api[_-]?key|access[_-]?token)=[^\s&;,\"']+"
    r"|://[^\s/:@]{1,256}:[^\s/@]{1,256}@"
)


_REFERENCE = re.compile(r"\$\{(?:(?:cmd|keyring):[^}]*|[^}\s]*)\}?")  # to the environment, a file, a command, a keyring
_COMMAND = re.compile(r"\$\{cmd:([^}]*)")


def holds_secret(text: str) -> bool:
    """Whether a part of the text looks like a secret that is written out, and is not a `${...}` reference."""
    if SECRET.search(_REFERENCE.sub("", text)) is not None:
        return True
    return any(SECRET.search(command) for command in _COMMAND.findall(text))


def mask_secrets(text: str) -> str:
    return SECRET.sub(MASK, text)


def new_secret() -> str:
    return PREFIX + secrets.token_urlsafe(32)


def digest(secret: str) -> str:
    """The hash that the configuration stores. A plain one is enough: 32 random bytes cannot be guessed."""
    return hashlib.sha256(secret.encode()).hexdigest()
