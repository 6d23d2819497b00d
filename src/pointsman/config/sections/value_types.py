"""The types of values in the configuration."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, SecretStr, StringConstraints

from pointsman.config.sections.values import (
    MAX_MEMORY,
    MIN_MEMORY,
    check_base_url,
    check_bearer_token,
    check_caller_name,
    check_client_id,
    check_collector,
    check_database_address,
    check_header_name,
    check_header_value,
    check_issuer,
    check_oauth_scope,
    check_peer_address,
    check_program,
    check_public_url,
    check_request_key,
    check_root_name,
    check_semantic,
    check_url,
    check_variable_name,
    parse_confirm,
    parse_memory,
    parse_moment,
    parse_network,
    parse_store,
    reject_empty_path,
    reject_null_character,
    resolve_path,
)
from pointsman.config.tool_patterns import check_pattern, check_patterns

Scope = Literal["read", "write", "destructive"]
SCOPES: tuple[Scope, ...] = ("read", "write", "destructive")


def check_scopes(scopes: tuple[Scope, ...]) -> tuple[Scope, ...]:
    """Once each, in one order. Raises ValueError."""
    if not scopes:
        raise ValueError("is an empty list; name at least one of `read`, `write` and `destructive`, or leave it out")
    return tuple(scope for scope in SCOPES if scope in scopes)


Scopes = Annotated[tuple[Scope, ...], AfterValidator(check_scopes)]
Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
DrainSeconds = Annotated[float, Field(ge=0, le=3_600, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
MemorySize = Annotated[int, Field(ge=MIN_MEMORY, le=MAX_MEMORY), BeforeValidator(parse_memory)]
Moment = Annotated[datetime, BeforeValidator(parse_moment)]
LocalPath = Annotated[Path, BeforeValidator(reject_empty_path), AfterValidator(resolve_path)]
Store = Annotated[Path | SecretStr, PlainValidator(parse_store)]
WebAddress = Annotated[str, AfterValidator(check_url)]
PublicAddress = Annotated[str, AfterValidator(check_public_url)]
IssuerAddress = Annotated[str, AfterValidator(check_issuer)]
ServiceAddress = Annotated[str, AfterValidator(check_base_url)]
CollectorAddress = Annotated[str, AfterValidator(check_collector)]
BearerToken = Annotated[SecretStr, AfterValidator(check_bearer_token)]
Semantic = Annotated[bool, AfterValidator(check_semantic)]
DatabaseAddress = Annotated[SecretStr, AfterValidator(check_database_address)]
PeerAddress = Annotated[str, AfterValidator(check_peer_address)]
RequestKey = Annotated[SecretStr, AfterValidator(check_request_key)]
Program = Annotated[str, AfterValidator(check_program)]
RootName = Annotated[str, AfterValidator(check_root_name)]
VariableName = Annotated[str, AfterValidator(check_variable_name)]
Variable = Annotated[SecretStr, AfterValidator(reject_null_character)]
Network = Annotated[str, AfterValidator(parse_network)]
ToolPattern = Annotated[str, AfterValidator(check_pattern)]
ToolPatternList = Annotated[tuple[ToolPattern, ...], AfterValidator(check_patterns)]
HeaderName = Annotated[str, AfterValidator(check_header_name)]
HeaderValue = Annotated[SecretStr, AfterValidator(check_header_value)]
Confirm = Annotated[str | tuple[str, ...], BeforeValidator(parse_confirm)]  # a word, or patterns over tool keys

CallerName = Annotated[str, AfterValidator(check_caller_name)]
ClientId = Annotated[str, AfterValidator(check_client_id)]
OAuthScope = Annotated[str, AfterValidator(check_oauth_scope)]

# Letters, digits, `_` and `-`, without `__`, which separates server and tool in names that clients see.
ID_PATTERN = r"^_?([A-Za-z0-9-]_?)*$"
PREFIX_PATTERN = r"^[A-Za-z0-9_.-]*$"  # characters that all clients accept
DIGEST_PATTERN = r"^[0-9A-Fa-f]{64}$"
MAX_ID_CHARS = 64
Id = Annotated[str, StringConstraints(pattern=ID_PATTERN, min_length=1, max_length=MAX_ID_CHARS)]
Prefix = Annotated[str, StringConstraints(pattern=PREFIX_PATTERN, max_length=64)]
Digest = Annotated[str, StringConstraints(pattern=DIGEST_PATTERN, to_lower=True)]
