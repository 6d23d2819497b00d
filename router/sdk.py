"""What the daemon takes from the mcp SDK: version tables and pure functions, so that an upgrade touches one file."""

from __future__ import annotations

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
