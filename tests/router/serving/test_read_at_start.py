"""Keys that a reload cannot apply: one list says which, for the warning and for the values that stay in effect."""

from __future__ import annotations

from operator import attrgetter

import pytest

from pointsman.config.model import GatewayConfig
from pointsman.router.serving.reload import READ_AT_START, keeping_started, needs_restart

OTHER = {
    "listen": {"host": "127.0.0.2", "port": 4000},
    "state": {"request_keys": ["k" * 64], "replicas": True},
    "telemetry": {"sample": 0.5},
    "workers": 3,
}


@pytest.mark.parametrize("key", READ_AT_START)
def test_each_of_them_is_named_and_keeps_its_value_while_others_change(key: str) -> None:
    section, _, name = key.partition(".")
    value = OTHER[section]
    edit = {section: {name: value[name]} if name and isinstance(value, dict) else value}
    old = GatewayConfig()
    new = GatewayConfig.model_validate({**edit, "projects": {"new": {}}})
    assert needs_restart(old, new) == [key]
    kept = keeping_started(old, new)
    assert attrgetter(key)(kept) == attrgetter(key)(old) != attrgetter(key)(new)
    assert needs_restart(old, kept) == []
    assert [*kept.projects] == ["new"]


def test_other_keys_of_the_same_section_change() -> None:
    new = GatewayConfig.model_validate({"listen": {"port": 4000, "allowed_hosts": ["mcp.example"]}})
    kept = keeping_started(GatewayConfig(), new)
    assert (kept.listen.port, kept.listen.allowed_hosts) == (GatewayConfig().listen.port, new.listen.allowed_hosts)
