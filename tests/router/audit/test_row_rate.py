"""How much a token may write to the audit at once, and how soon it may go on."""

from __future__ import annotations

import pytest

from pointsman.config.model import Audit, CurrentConfig, GatewayConfig, Limits
from pointsman.router.audit.row_rate import RowRate

MIB = 1 << 20
ROW = 250  # bytes of a usual row


def current(per_s: int = MIB, max_bytes: int = 1 << 30) -> CurrentConfig:
    return CurrentConfig(GatewayConfig(limits=Limits(audit_bytes_per_s=per_s), audit=Audit(max_bytes=max_bytes)))


def test_a_minute_of_twenty_thousand_calls_a_second_is_within_the_defaults() -> None:
    rate = RowRate(CurrentConfig(GatewayConfig()))
    for second in range(60):
        assert rate.wait_s("anna", second) == 0
        rate.wrote("anna", 20_000 * ROW // 2)
        assert rate.wait_s("anna", second + 0.5) == 0
        rate.wrote("anna", 20_000 * ROW // 2)


@pytest.mark.parametrize(
    ("per_s", "max_bytes", "burst"),
    [(1000, 1 << 30, 300_000), (MIB, 40 * MIB, 10 * MIB)],
    ids=["five minutes' worth", "a quarter of a small audit"],
)
def test_behind_its_burst_a_token_waits_and_others_do_not(per_s: int, max_bytes: int, burst: int) -> None:
    rate = RowRate(current(per_s, max_bytes))
    assert rate.wait_s("anna", 0) == 0
    rate.wrote("anna", burst - 1)
    assert rate.wait_s("anna", 0) == 0
    rate.wrote("anna", per_s)
    assert rate.wait_s("anna", 0) == pytest.approx(1, rel=0.01)
    assert rate.wait_s("ben", 0) == 0
    assert rate.wait_s("anna", 2) == 0


def test_a_reload_with_another_rate_applies_its_burst_to_all() -> None:
    config = current(1000)
    rate = RowRate(config)
    assert rate.wait_s("anna", 0) == 0
    rate.wrote("anna", 400_000)
    assert rate.wait_s("anna", 0) > 0
    config.replace(current(2000).config)
    assert rate.wait_s("anna", 0) == 0
