"""The requests, answers and errors of the search service as models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

API_VERSION = "1"
MAX_QUERY_CHARS = 8_000  # of each text; `tool_discovery` also limits all of them together
MAX_NAME_CHARS = 1_024
DEFAULT_RESULTS = 10
MAX_RESULTS = 100

Code = Literal[
    "bad_request",
    "unsupported_version",
    "unauthorized",
    "denied",
    "not_found",
    "method_not_allowed",
    "timeout",
    "too_large",
    "unsupported_media_type",
    "misdirected",
    "too_many_requests",
    "overloaded",
    "internal",
]
CODES: Mapping[Code, str] = {  # in the OpenAPI document, and in docs/reference/errors.md by `make docs`
    "bad_request": "The request is malformed.",
    "unsupported_version": "The service does not support this `apiVersion`.",
    "unauthorized": "The token is missing, unknown or expired.",
    "denied": "The token may not use this project, or the origin is not allowed.",
    "not_found": "There is no such page.",
    "method_not_allowed": "The page does not take this HTTP method.",
    "timeout": "The request took too long to arrive, or the search took too long.",
    "too_large": "The body or the headers are too large, or there are too many tools.",
    "unsupported_media_type": "The body is neither plain nor gzip-compressed JSON.",
    "misdirected": "The Host header is not allowed.",
    "too_many_requests": "There are too many concurrent searches with this token.",
    "overloaded": "There are too many concurrent searches.",
    "internal": "A bug in the service; its log has the reason.",
}


def _whole(value: object) -> object:
    """Accept 5.0, which is an integer in JSON but not in pydantic's strict mode."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


Text = Annotated[str, Field(max_length=MAX_QUERY_CHARS)]
Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS)]


class Message(BaseModel):
    """Base model. Ignores unknown fields, because a newer gateway may send more."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, hide_input_in_errors=True)


class ToolInfo(Message):
    """One tool that the caller may use."""

    toolKey: Name = Field(  # noqa: N815
        description="Identifies the tool in the answer. Of two tools with the same key, the first is used."
    )
    toolName: Name  # noqa: N815
    serverName: Annotated[str, Field(max_length=MAX_NAME_CHARS)]  # noqa: N815
    description: str | None = None
    inputSchema: dict[str, Any] | None = Field(  # noqa: N815
        default=None, description="Parameter names and descriptions are searched."
    )


class SearchQuery(Message):
    """A search request without its tools."""

    apiVersion: str | None = Field(  # noqa: N815
        default=None, pattern=r"^1(\.[0-9]{1,9})?$", description=f"Default: {API_VERSION}."
    )
    query: Text | Annotated[list[Text], Field(min_length=1)] = Field(
        description="What to find a tool for; each entry is a separate intent."
    )
    context: Text | None = Field(default=None, description="Background of the queries; weighs less than they do.")
    maxResults: Annotated[int, Field(ge=1, le=MAX_RESULTS), BeforeValidator(_whole)] | None = Field(  # noqa: N815
        default=None, description=f"Default: {DEFAULT_RESULTS}."
    )

    @property
    def queries(self) -> tuple[str, ...]:
        return (self.query,) if isinstance(self.query, str) else tuple(self.query)


class SearchBody(SearchQuery):
    """What to search for, and in which tools."""

    tools: list[ToolInfo]


class Result(Message):
    toolKey: str  # noqa: N815
    toolName: str  # noqa: N815
    serverName: str  # noqa: N815
    description: str | None = Field(default=None, description="Truncated if long.")
    relevance: float = Field(ge=0, le=1, description="Likelihood that this tool fits the query.")
    explanation: str | None = None
    intents: list[int] | None = Field(default=None, description="Indexes of the queries that it fits.")


class SearchAnswer(Message):
    """The matching tools, best first."""

    apiVersion: Literal["1"]  # noqa: N815
    results: list[Result]
    bestByQuery: list[float] | None = Field(  # noqa: N815
        default=None, description="For each query, the relevance of the best of all tools, listed here or not."
    )
    provider: str = Field(description="The provider that ranked them: `bm25+static`, `bm25` or `llm`.")


class Problem(Message):
    code: Code = Field(description=" ".join(f"`{code}`: {text}" for code, text in CODES.items()))
    message: str = Field(description="What went wrong, and the next step.")


class ErrorBody(Message):
    error: Problem


class Health(Message):
    ready: bool
    version: str | None = Field(default=None, description="This and the fields below require a token.")
    provider: str | None = None
    configuration: str | None = Field(default=None, description="Why the last edit was rejected.")
