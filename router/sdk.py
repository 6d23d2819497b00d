"""What the daemon takes from the mcp SDK: version tables and pure functions, so that an upgrade touches one file."""

from __future__ import annotations

import sys
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
)
from mcp_types.version import (
    HANDSHAKE_PROTOCOL_VERSIONS,
    LATEST_HANDSHAKE_VERSION,
    LATEST_MODERN_VERSION,
    MODERN_PROTOCOL_VERSIONS,
)

if TYPE_CHECKING:
    from mcp.shared.inbound import (
        ERROR_CODE_HTTP_STATUS,
        NAME_BEARING_METHODS,
        InboundLadderRejection,
        classify_inbound_request,
        encode_header_value,
        find_invalid_x_mcp_header,
        mcp_param_headers,
        unsupported_protocol_version_rejection,
        x_mcp_header_map,
    )
else:

    def _alone(*path: str) -> ModuleType:
        """A module of the SDK without its package, which would load client, server and OAuth: 0.6 s and 30 MB."""
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

    _inbound = _alone("shared", "inbound.py")
    ERROR_CODE_HTTP_STATUS = _inbound.ERROR_CODE_HTTP_STATUS
    NAME_BEARING_METHODS = _inbound.NAME_BEARING_METHODS
    InboundLadderRejection = _inbound.InboundLadderRejection
    classify_inbound_request = _inbound.classify_inbound_request
    encode_header_value = _inbound.encode_header_value
    find_invalid_x_mcp_header = _inbound.find_invalid_x_mcp_header
    mcp_param_headers = _inbound.mcp_param_headers
    unsupported_protocol_version_rejection = _inbound.unsupported_protocol_version_rejection
    x_mcp_header_map = _inbound.x_mcp_header_map

__all__ = [
    "CLIENT_CAPABILITIES_META_KEY",
    "CLIENT_INFO_META_KEY",
    "ERROR_CODE_HTTP_STATUS",
    "HANDSHAKE_PROTOCOL_VERSIONS",
    "HEADER_MISMATCH",
    "LATEST_HANDSHAKE_VERSION",
    "LATEST_MODERN_VERSION",
    "LOG_LEVEL_META_KEY",
    "MODERN_PROTOCOL_VERSIONS",
    "NAME_BEARING_METHODS",
    "PROTOCOL_VERSION_META_KEY",
    "SERVER_INFO_META_KEY",
    "InboundLadderRejection",
    "classify_inbound_request",
    "encode_header_value",
    "find_invalid_x_mcp_header",
    "mcp_param_headers",
    "unsupported_protocol_version_rejection",
    "x_mcp_header_map",
]
