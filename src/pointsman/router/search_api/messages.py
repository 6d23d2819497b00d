"""The wire of the search service as models: what comes in, what goes out, and what is told when it cannot be done."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

API_VERSION = "1"
MAX_QUERY_CHARS = 8_000  # as many as a discovery takes
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


def _whole(value: object) -> object:
    """In JSON 5.0 is a whole number, and `true` and "5" are none; pydantic sees that the other way round."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


Text = Annotated[str, Field(max_length=MAX_QUERY_CHARS)]
Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS)]


class Message(BaseModel):
    """Unknown fields are ignored: a newer gateway may send more than this service knows."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, hide_input_in_errors=True)


class ToolInfo(Message):
    """One tool that the caller may use."""

    toolKey: Name = Field(description="Names the tool in the answer. The first of two with one key counts.")  # noqa: N815
    toolName: Name  # noqa: N815
    serverName: Annotated[str, Field(max_length=MAX_NAME_CHARS)]  # noqa: N815
    description: str | None = None
    inputSchema: dict[str, Any] | None = Field(  # noqa: N815
        default=None, description="The names and descriptions of its parameters are read."
    )


class Asked(Message):
    """A request without its tools."""

    apiVersion: str | None = Field(  # noqa: N815
        default=None, pattern=r"^1(\.[0-9]{1,9})?$", description=f"{API_VERSION} where it is absent."
    )
    query: Text | Annotated[list[Text], Field(min_length=1)] = Field(
        description="What is to be done; each entry is a wish of its own."
    )
    context: Text | None = Field(default=None, description="Background of the wishes; it counts less than they do.")
    maxResults: Annotated[int, Field(ge=1, le=MAX_RESULTS), BeforeValidator(_whole)] | None = Field(  # noqa: N815
        default=None, description=f"{DEFAULT_RESULTS} where it is absent."
    )

    @property
    def queries(self) -> tuple[str, ...]:
        return (self.query,) if isinstance(self.query, str) else tuple(self.query)


class SearchBody(Asked):
    """What to look for, and among which tools."""

    tools: list[ToolInfo]


class Result(Message):
    toolKey: str  # noqa: N815
    toolName: str  # noqa: N815
    serverName: str  # noqa: N815
    description: str | None = Field(default=None, description="Of a long one the beginning.")
    relevance: float = Field(ge=0, le=1, description="The likelihood that this is what was asked for.")
    explanation: str | None = None
    intents: list[int] | None = Field(default=None, description="Which of the queries it serves, by their place.")


class SearchAnswer(Message):
    """The tools that fit, best first."""

    apiVersion: Literal["1"]  # noqa: N815
    results: list[Result]
    bestByQuery: list[float] | None = Field(  # noqa: N815
        default=None, description="For each query, how well the best of all tools fits it, listed here or not."
    )
    provider: str = Field(description="What really ranked them: `bm25+static`, `bm25` or `llm`.")


class Problem(Message):
    code: Code
    message: str = Field(description="What is wrong, and what to do about it.")


class ErrorBody(Message):
    error: Problem


class Health(Message):
    ready: bool
    version: str | None = Field(default=None, description="This and all below: only with a token.")
    provider: str | None = None
    configuration: str | None = Field(default=None, description="What became of an edit that was refused.")
