"""All that the daemon imports from the mcp SDK: version tables and pure functions. An upgrade touches one file.

Importing the package `mcp` takes 0.8 s of CPU time and `mcp_types` a third of that, because each builds
hundreds of pydantic models that the daemon does not use. So the two modules needed here, which are plain Python, are
loaded from their files, and what they import from the rest of the SDK is defined here.
"""

from __future__ import annotations

import builtins
import sys
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pointsman.core.seams import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR

# Defined among the models of `mcp_types`; a test compares them with the SDK.
PROTOCOL_VERSION_META_KEY = "io.modelcontextprotocol/protocolVersion"
CLIENT_INFO_META_KEY = "io.modelcontextprotocol/clientInfo"
CLIENT_CAPABILITIES_META_KEY = "io.modelcontextprotocol/clientCapabilities"
LOG_LEVEL_META_KEY = "io.modelcontextprotocol/logLevel"
SERVER_INFO_META_KEY = "io.modelcontextprotocol/serverInfo"
INPUT_REQUIRED_METHODS = frozenset({"tools/call", "prompts/get", "resources/read"})
HEADER_MISMATCH = -32020
MISSING_REQUIRED_CLIENT_CAPABILITY = -32021
UNSUPPORTED_PROTOCOL_VERSION = -32022


class UnsupportedProtocolVersionErrorData(Struct, frozen=True):
    """The model of `mcp_types` that the header ladder uses."""

    supported: list[str]
    requested: str

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        return {"supported": self.supported, "requested": self.requested}


def _import(name: str, *args: Any) -> Any:
    """`__import__` for a module that is loaded alone: of the SDK it gets what is loaded or defined here."""
    if name.partition(".")[0] in ("mcp", "mcp_types"):
        return sys.modules.get(_alias(name)) or sys.modules[__name__]
    return builtins.__import__(name, *args)


def _alias(name: str) -> str:
    return f"{__name__}:{name}"


def _load_alone(name: str) -> ModuleType:
    """Load a module of the SDK from its file, without the package around it."""
    package, *path = name.split(".")
    found = find_spec(package)
    assert found is not None
    assert found.submodule_search_locations is not None
    file = Path(found.submodule_search_locations[0]).joinpath(*path).with_suffix(".py")
    spec = spec_from_file_location(_alias(name), file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    module.__dict__["__builtins__"] = {**vars(builtins), "__import__": _import}
    sys.modules[spec.name] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module


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
        validate_mcp_param_headers,
        x_mcp_header_map,
    )
    from mcp_types.version import (
        HANDSHAKE_PROTOCOL_VERSIONS,
        LATEST_HANDSHAKE_VERSION,
        LATEST_MODERN_VERSION,
        MODERN_PROTOCOL_VERSIONS,
    )
else:
    _version = _load_alone("mcp_types.version")
    HANDSHAKE_PROTOCOL_VERSIONS = _version.HANDSHAKE_PROTOCOL_VERSIONS
    LATEST_HANDSHAKE_VERSION = _version.LATEST_HANDSHAKE_VERSION
    LATEST_MODERN_VERSION = _version.LATEST_MODERN_VERSION
    MODERN_PROTOCOL_VERSIONS = _version.MODERN_PROTOCOL_VERSIONS

    _inbound = _load_alone("mcp.shared.inbound")
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


__all__ = [
    "CLIENT_CAPABILITIES_META_KEY",
    "CLIENT_INFO_META_KEY",
    "ERROR_CODE_HTTP_STATUS",
    "HANDSHAKE_PROTOCOL_VERSIONS",
    "HEADER_MISMATCH",
    "INPUT_REQUIRED_METHODS",
    "INVALID_PARAMS",
    "INVALID_REQUEST",
    "LATEST_HANDSHAKE_VERSION",
    "LATEST_MODERN_VERSION",
    "LOG_LEVEL_META_KEY",
    "METHOD_NOT_FOUND",
    "MISSING_REQUIRED_CLIENT_CAPABILITY",
    "MODERN_PROTOCOL_VERSIONS",
    "NAME_BEARING_METHODS",
    "PARSE_ERROR",
    "PROTOCOL_VERSION_META_KEY",
    "SERVER_INFO_META_KEY",
    "UNSUPPORTED_PROTOCOL_VERSION",
    "InboundLadderRejection",
    "classify_inbound_request",
    "encode_header_value",
    "find_invalid_x_mcp_header",
    "mcp_param_headers",
    "unsupported_protocol_version_rejection",
    "validate_mcp_param_headers",
    "x_mcp_header_map",
]
