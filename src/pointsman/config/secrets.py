"""Secrets of tokens: how they are made, and what of them is kept."""

from __future__ import annotations

import hashlib
import secrets

PREFIX = "ptm_"  # so that scanners of repositories and logs can tell what leaked


def new_secret() -> str:
    return PREFIX + secrets.token_urlsafe(32)


def digest(secret: str) -> str:
    """What the configuration holds of a secret. A plain hash is enough: 32 random bytes cannot be guessed."""
    return hashlib.sha256(secret.encode()).hexdigest()
