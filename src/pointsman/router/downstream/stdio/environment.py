"""The environment of a child: what any program needs, what the network needs, and the variables of its entry.

Every variable is named here. A prefix would pass secrets: `UV_INDEX_X_PASSWORD`, `npm_config_//host/:_authToken`.
docs/reference/configuration.md lists the same names.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

_BASIC = frozenset({"PATH", "HOME", "LANG", "LANGUAGE", "TERM", "TMPDIR", "TZ", "USER", "LOGNAME", "SHELL"})
_PROXY = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
NETWORK = frozenset({*_PROXY, *(name.lower() for name in _PROXY), *_CERTIFICATES})
_UV = frozenset({"UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_NATIVE_TLS", "UV_SYSTEM_CERTS"})
_NPM = frozenset({"npm_config_registry", "npm_config_cafile", "NPM_CONFIG_REGISTRY", "NPM_CONFIG_CAFILE"})
_BY_PROGRAM = {"uv": _UV, "uvx": _UV, "npm": _NPM, "npx": _NPM, "pnpm": _NPM, "bunx": _NPM}
ALWAYS = _BASIC | NETWORK
IMAGE = "POINTSMAN_IMAGE"  # set by our container image
_IN_FULL_IMAGE = frozenset({"uv", "uvx", "node", "npm", "npx", "git"})


def child_environment(
    ours: Mapping[str, str], configured: Mapping[str, str], program: str = "", named: Sequence[str] = ()
) -> dict[str, str]:
    """Return the variables of a child that runs `program`; `named` is its `inherit_env`, `configured` its `env`."""
    inherited = ALWAYS | _BY_PROGRAM.get(os.path.basename(program), frozenset()) | frozenset(named)
    env = {name: value for name, value in ours.items() if name in inherited or name.startswith("LC_")}
    env.update(configured)
    return env


def missing_program_hint(program: str, environ: Mapping[str, str]) -> str | None:
    """The next step for a program that the small container image leaves out; None: for any other, and elsewhere."""
    if environ.get(IMAGE) != "small" or program not in _IN_FULL_IMAGE:
        return None
    return f"This image does not contain {program}; the image `full` does: `docker compose --profile full up full`"
