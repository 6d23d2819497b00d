"""Binding says in words what is in the way."""

import socket
import sys

import pytest

from pointsman.router.serving.socket import ListenError, bind, reserve, url_of


def test_port_0_takes_a_free_one_and_says_which() -> None:
    with bind("127.0.0.1", 0) as listener:
        assert url_of(listener) == f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_a_taken_port_is_named_with_the_way_out() -> None:
    with bind("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(ListenError, match=rf"Port {port} .* --port"):
            bind("127.0.0.1", port)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux divides the connections of a port")
def test_a_reserved_port_is_shared_by_those_who_mean_to() -> None:
    with reserve("127.0.0.1", 0) as held:
        port = held.getsockname()[1]
        with bind("127.0.0.1", port, shared=True), bind("127.0.0.1", port, shared=True):
            with pytest.raises(ListenError, match=rf"Port {port} .* taken"):
                bind("127.0.0.1", port)
            with pytest.raises(ListenError, match=rf"Port {port} .* taken"):
                reserve("127.0.0.1", port)  # workers of another gateway, which the kernel would let in


def test_an_unknown_host_is_named() -> None:
    with pytest.raises(ListenError, match=r"`no such host`"):
        bind("no such host", 0)


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_an_ipv6_address_is_written_as_a_url_wants_it() -> None:
    try:
        listener = bind("::1", 0)
    except ListenError:
        pytest.skip("no IPv6 loopback here")
    with listener:
        assert url_of(listener).startswith("http://[::1]:")
