"""The environment of the commands and of the keyring that the configuration takes secrets from.

Commands get what every child of the gateway gets, and what leads to the session of the user: no variable that usually
holds a secret. docs/guide/secrets.md lists the same names.
"""

from __future__ import annotations

from collections.abc import Mapping

from pointsman.config.secret_reader import SecretReader
from pointsman.router.downstream.stdio.environment import child_environment

SESSION = (
    "DBUS_SESSION_BUS_ADDRESS",
    "DISPLAY",
    "GNUPGHOME",
    "PASSWORD_STORE_DIR",
    "SSH_AUTH_SOCK",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
)
_KEYRING = ("PYTHON_KEYRING_BACKEND", "KEYRING_PROPERTY_")  # the second is a prefix: settings of a backend


def secret_reader(ours: Mapping[str, str]) -> SecretReader:
    """`ours` is the environment of this process."""
    return SecretReader(child_environment(ours, {}, named=SESSION), keyring_environment(ours))


def keyring_environment(ours: Mapping[str, str]) -> dict[str, str]:
    """Our own program that asks the keyring gets the settings of its backend, too, which may have a password."""
    settings = {name: value for name, value in ours.items() if name.startswith(_KEYRING)}
    return child_environment(ours, settings, named=SESSION)
