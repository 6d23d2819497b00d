"""Where a gateway is reached by the others on its database."""

from __future__ import annotations

import pytest

from pointsman.router.shared_state import own_address

URL = "postgresql://me@127.0.0.1:5432/x"


@pytest.mark.parametrize(
    ("given", "address"),
    [
        (None, "127.0.0.1:3282"),  # on the way to the database
        ("10.0.0.5", "10.0.0.5:3282"),
        ("10.0.0.5:80", "10.0.0.5:80"),
        ("[fd00::5]", "[fd00::5]:3282"),
        ("[fd00::5]:80", "[fd00::5]:80"),
    ],
)
def test_the_port_of_the_gateway_is_added_to_a_host_alone(given: str | None, address: str) -> None:
    assert own_address(URL, 3282, given) == address
