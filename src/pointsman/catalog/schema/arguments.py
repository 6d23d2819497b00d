"""Checks a call's arguments against the tool's inputSchema, with errors from which a model can correct them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from pointsman.catalog.schema.check_program import problems, shortened
from pointsman.catalog.schema.cost import BACKTRACK_LIMIT, CheckCost, bound_cost
from pointsman.core.errors import InvalidArgumentsError
from pointsman.core.model import Json

if TYPE_CHECKING:  # loaded with the first call
    from jsonschema_rs import Validator

logger = logging.getLogger(__name__)

MAX_SCHEMA_BYTES = 262_144
MAX_SHOWN_SCHEMA_CHARS = 40_000  # in an error, which only a caller with wrong arguments reads
MAX_COMPILED_BYTES = 65_536  # larger schemas are compiled in the check process
MAX_CHECK_COST = 8_000_000  # visits of a plain value (see `CheckCost`): about 30 ms
MAX_EXPLAIN_COST = 2_000  # an error costs up to a hundred times a visit, and 10 KB
MAX_EXPLAIN_CHARS = 400_000  # each error has a copy of the value that it is about
MAX_QUADRATIC_CHARS = 4_000
MAX_EXPLAINED_VALUES = 1_000  # above that the error only says that the arguments are wrong
MAX_COUNTED_VALUES = 20_000  # one by one, which takes 3 ms
MAX_JOB_BYTES = 1_048_576  # for the check process

_CONTAINERS = {dict, list}
_encode = msgspec.json.Encoder().encode
_TOO_COSTLY = "they do not fit; finding out where would take too long, so compare them with the schema"


class ArgumentCheck:
    """The check for one tool definition. The schema is compiled once, at the first call."""

    __slots__ = ("_cost", "_prepared", "_schema", "_tool_key", "_unusable", "_validator", "_warned")

    def __init__(self, tool_key: str, schema: Json) -> None:
        self._tool_key = tool_key
        self._schema = schema
        self._prepared = False
        self._unusable = False
        self._warned = False
        self._cost: CheckCost | None = None
        self._validator: Validator | None = None  # None: the check process does it

    def __call__(self, arguments: Any) -> DeferredCheck | None:
        """Check arguments at once if that is known to be cheap; otherwise return a job for the check process.

        An invalid schema stops no call: then the server decides.

        Raises:
            InvalidArgumentsError: they do not match.
        """
        if not isinstance(arguments, dict):
            raise self.mismatch(["`arguments`: must be an object"])
        if not self._prepared:
            self._prepare()
        if self._unusable:
            return None
        cost, validator = self._cost, self._validator
        if cost is None or validator is None:
            return DeferredCheck(self, arguments)
        values, chars = _bound(arguments)
        costly = cost.per_value * values + cost.per_byte * chars > MAX_CHECK_COST or cost.quadratic
        if costly and _is_costly(cost, *_measure(arguments)):
            return DeferredCheck(self, arguments)
        if validator.is_valid(arguments):
            return None
        return self._explain(validator, cost, arguments, *_measure(arguments))

    def _prepare(self) -> None:
        from jsonschema_rs import FancyRegexOptions, ValidationError, validator_for

        self._prepared = True
        try:
            size = len(msgspec.json.encode(self._schema))
            self._cost = bound_cost(self._schema) if size <= MAX_COMPILED_BYTES else None
            if self._cost is not None:  # an external `$ref` is an error and is never fetched
                patterns = FancyRegexOptions(backtrack_limit=BACKTRACK_LIMIT)
                self._validator = validator_for(self._schema, offline=True, pattern_options=patterns)
        except (ValueError, RecursionError) as error:  # ValidationError is a ValueError
            self.disable(error.message if isinstance(error, ValidationError) else str(error))
        else:
            if size > MAX_SCHEMA_BYTES:
                self.disable(f"larger than {MAX_SCHEMA_BYTES} bytes")

    def _explain(
        self, validator: Validator, cost: CheckCost, arguments: Json, values: int, chars: int
    ) -> DeferredCheck:
        if values > MAX_EXPLAINED_VALUES:
            raise self.mismatch(["the arguments hold too many values to say where"])
        costly = cost.per_value * values > MAX_EXPLAIN_COST or cost.per_value * chars > MAX_EXPLAIN_CHARS
        if costly or cost.quadratic:  # a pattern that reached our limit may still match: the process has a higher one
            return DeferredCheck(self, arguments, invalid=not cost.quadratic)
        raise self.mismatch(problems(validator, arguments))

    def disable(self, reason: str) -> None:
        """Stop checking; log the reason once."""
        self._unusable = True
        self.warn(shortened(reason))

    def warn(self, reason: str) -> None:
        if not self._warned:
            self._warned = True
            logger.warning("arguments of %r are not checked, inputSchema: %r", self._tool_key, reason)

    def job(self, arguments: Json) -> bytes | None:
        """The input for the check process; None: it would be too large."""
        try:
            job = msgspec.json.encode({"schema": self._schema, "arguments": arguments})
        except (ValueError, RecursionError):
            return None
        return job if len(job) <= MAX_JOB_BYTES else None

    def mismatch(self, problems: Sequence[str]) -> InvalidArgumentsError:
        listed = "\n".join(f"- {problem}" for problem in problems)
        return InvalidArgumentsError(
            f"The arguments do not fit `{self._tool_key}`, and nothing was sent:\n{listed}\n"
            f"Correct them and call again. The tool's inputSchema:\n{self._shown_schema()}"
        )

    def _shown_schema(self) -> str:
        text = msgspec.json.encode(self._schema).decode()
        if len(text) <= MAX_SHOWN_SCHEMA_CHARS:
            return text
        return f"{text[:MAX_SHOWN_SCHEMA_CHARS]}... (cut: it has {len(text)} characters)"


class DeferredCheck(msgspec.Struct, frozen=True):
    """Arguments whose check, or explanation, may cost too much for the event loop."""

    check: ArgumentCheck
    arguments: Json
    invalid: bool = False  # already known; only the explanation is missing

    def job(self) -> bytes | None:
        return self.check.job(self.arguments)

    def apply_verdict(self, lines: Sequence[bytes]) -> bool:
        """Act on the output of the check process, which may have been killed before or between its lines.

        Returns whether the arguments are known to match; if not, the server decides.

        Raises:
            InvalidArgumentsError: they do not match.
        """
        verdict, _, reason = (lines[0] if lines else b"").decode().partition(" ")
        if verdict == "valid":
            return True
        if verdict == "unusable":
            self.check.disable(reason)
        elif verdict == "invalid" or self.invalid:
            raise self.check.mismatch(msgspec.json.decode(lines[1]) if len(lines) > 1 else [_TOO_COSTLY])
        else:
            self.check.warn("checking them takes too long")
        return False


def _measure(arguments: Json) -> tuple[int, int]:
    """The number of values and characters in the arguments, at any depth; an upper bound of both if they are many."""
    values, chars = 1, 0
    waiting: list[Any] = [arguments]
    while waiting:
        part = waiting.pop()
        values += len(part)
        if values > MAX_COUNTED_VALUES:
            return _bound(arguments)
        inside = part
        if type(part) is dict:
            inside = part.values()
            for name in part:
                chars += len(name)
        for value in inside:
            kind = type(value)
            if kind is str:
                chars += len(value)
            elif kind in _CONTAINERS:
                waiting.append(value)
    return values, chars


def _bound(arguments: Json) -> tuple[int, int]:
    """An upper bound of both, in less time: a value takes at least two bytes of JSON, with its separator."""
    try:
        size = len(_encode(arguments))
    except (ValueError, RecursionError):
        return MAX_CHECK_COST + 1, 0
    return size // 2, size


def _is_costly(cost: CheckCost, values: int, chars: int) -> bool:
    if cost.per_value * values + cost.per_byte * chars > MAX_CHECK_COST:
        return True
    return cost.quadratic and chars > MAX_QUADRATIC_CHARS
