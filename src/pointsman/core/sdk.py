"""All that the daemon imports from the mcp SDK: version tables and pure functions. An upgrade touches one file."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    HEADER_MISMATCH,
    LOG_LEVEL_META_KEY,
    PROTOCOL_VERSION_META_KEY,
    SERVER_INFO_META_KEY,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from mcp_types.version import (
    HANDSHAKE_PROTOCOL_VERSIONS,
    LATEST_HANDSHAKE_VERSION,
    LATEST_MODERN_VERSION,
    MODERN_PROTOCOL_VERSIONS,
)

if TYPE_CHECKING:
    from mcp.server.request_state import AESGCMRequestStateCodec
    from mcp.shared.inbound import (
        ERROR_CODE_HTTP_STATUS,
        NAME_BEARING_METHODS,
        InboundLadderRejection,
        classify_inbound_request,
        encode_header_value,
        find_invalid_x_mcp_header,
        mcp_param_headers,
        unsupported_protocol_version_rejection,
        validate_mcp_param_headers,
        x_mcp_header_map,
    )
else:

    def _load_alone(*path: str) -> ModuleType:
        """Load a module of the SDK without its package, which would bring client, server and OAuth: 0.6 s and 30 MB."""
        package = find_spec("mcp")
        assert package is not None
        assert package.submodule_search_locations is not None
        file = Path(package.submodule_search_locations[0]).joinpath(*path)
        spec = spec_from_file_location(f"{__name__}_{file.stem}", file)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[spec.name] = module_from_spec(spec)  # dataclasses look their module up there
        spec.loader.exec_module(module)
        return module

    _inbound = _load_alone("shared", "inbound.py")
    ERROR_CODE_HTTP_STATUS = _inbound.ERROR_CODE_HTTP_STATUS
    NAME_BEARING_METHODS = _inbound.NAME_BEARING_METHODS
    InboundLadderRejection = _inbound.InboundLadderRejection
    classify_inbound_request = _inbound.classify_inbound_request
    encode_header_value = _inbound.encode_header_value
    find_invalid_x_mcp_header = _inbound.find_invalid_x_mcp_header
    mcp_param_headers = _inbound.mcp_param_headers
    unsupported_protocol_version_rejection = _inbound.unsupported_protocol_version_rejection
    validate_mcp_param_headers = _inbound.validate_mcp_param_headers
    x_mcp_header_map = _inbound.x_mcp_header_map

INPUT_REQUIRED_METHODS = frozenset({"tools/call", "prompts/get", "resources/read"})  # a test compares it with the SDK


class SealError(Exception):
    """Not sealed by us, or modified since."""


class Sealing:
    """The SDK's AES-GCM with a ring of keys: the first one seals, all of them unseal.

    Imported at first use, because it imports the whole SDK server; `load_sealing` does so ahead of time.
    """

    def __init__(self, keys: Sequence[bytes | str]) -> None:
        self._keys = tuple(keys)
        self._codec: AESGCMRequestStateCodec | None = None

    def seal(self, payload: bytes) -> str:
        return self._loaded().seal(payload)

    def unseal(self, token: str) -> bytes:
        """Raises SealError."""
        codec = self._loaded()
        from mcp.server.request_state import InvalidRequestState

        try:
            return codec.unseal(token)
        except InvalidRequestState:
            raise SealError from None

    def _loaded(self) -> AESGCMRequestStateCodec:
        if self._codec is None:
            from mcp.server.request_state import AESGCMRequestStateCodec

            self._codec = AESGCMRequestStateCodec(self._keys)
        return self._codec


def load_sealing() -> None:
    """Import what `Sealing` needs. Takes about half a second: run it on a thread, ahead of the first request."""
    import_module("mcp.server.request_state")


__all__ = [
    "CLIENT_CAPABILITIES_META_KEY",
    "CLIENT_INFO_META_KEY",
    "ERROR_CODE_HTTP_STATUS",
    "HANDSHAKE_PROTOCOL_VERSIONS",
    "HEADER_MISMATCH",
    "INPUT_REQUIRED_METHODS",
    "LATEST_HANDSHAKE_VERSION",
    "LATEST_MODERN_VERSION",
    "LOG_LEVEL_META_KEY",
    "MODERN_PROTOCOL_VERSIONS",
    "NAME_BEARING_METHODS",
    "PROTOCOL_VERSION_META_KEY",
    "SERVER_INFO_META_KEY",
    "UNSUPPORTED_PROTOCOL_VERSION",
    "InboundLadderRejection",
    "SealError",
    "Sealing",
    "classify_inbound_request",
    "encode_header_value",
    "find_invalid_x_mcp_header",
    "load_sealing",
    "mcp_param_headers",
    "unsupported_protocol_version_rejection",
    "validate_mcp_param_headers",
    "x_mcp_header_map",
]
