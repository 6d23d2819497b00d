"""Checks a call's arguments against the tool's inputSchema, and says what is wrong so that a model can mend it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from jsonschema_rs import FancyRegexOptions, ValidationError, Validator, validator_for

from pointsman.catalog.check_program import problems, shortened
from pointsman.catalog.schema_work import BACKTRACK_LIMIT, Work, work_of
from pointsman.core.errors import InvalidArgumentsError
from pointsman.core.model import Json

logger = logging.getLogger(__name__)

MAX_SCHEMA_BYTES = 262_144
MAX_SHOWN_SCHEMA_CHARS = 40_000  # only who got it wrong has to read it
MAX_COMPILED_BYTES = 65_536  # larger schemas are compiled in the check process
MAX_CHECK_WORK = 8_000_000  # visits of a plain value (see `Work`): about 30 ms
MAX_EXPLAIN_WORK = 2_000  # an error costs up to a hundred times a visit, and 10 KB
MAX_EXPLAIN_CHARS = 400_000  # each error holds a copy of the value that it is about
MAX_QUADRATIC_CHARS = 4_000
MAX_EXPLAINED_VALUES = 1_000  # above that the answer says only that the arguments are wrong
MAX_COUNTED_VALUES = 20_000  # one by one, which takes 3 ms
MAX_JOB_BYTES = 1_048_576  # what the check process is given at most

_PATTERNS = FancyRegexOptions(backtrack_limit=BACKTRACK_LIMIT)
_CONTAINERS = {dict, list}
_TOO_COSTLY = "they do not fit; finding out where would take too long, so compare them with the schema"


class ArgumentCheck:
    """The check of one tool definition. The schema is compiled at the first call, and only once."""

    __slots__ = ("_prepared", "_schema", "_tool_key", "_unusable", "_validator", "_warned", "_work")

    def __init__(self, tool_key: str, schema: Json) -> None:
        self._tool_key = tool_key
        self._schema = schema
        self._prepared = False
        self._unusable = False
        self._warned = False
        self._work: Work | None = None
        self._validator: Validator | None = None  # None where the check process has to do it

    def __call__(self, arguments: Any) -> Unproven | None:
        """Check here what is known to be cheap; the rest is returned, for the check process.

        A schema that is itself wrong stops no call: the server decides then.

        Raises:
            InvalidArgumentsError: they do not fit.
        """
        if not isinstance(arguments, dict):
            raise self.mismatch(["`arguments`: must be an object"])
        if not self._prepared:
            self._prepare()
        if self._unusable:
            return None
        work, validator = self._work, self._validator
        if work is None or validator is None:
            return Unproven(self, arguments)
        values, chars = _measured(arguments)
        if not _cheap(work, values, chars):
            return Unproven(self, arguments)
        if validator.is_valid(arguments):
            return None
        return self._explain(validator, work, arguments, values, chars)

    def _prepare(self) -> None:
        self._prepared = True
        try:
            size = len(msgspec.json.encode(self._schema))
            self._work = work_of(self._schema) if size <= MAX_COMPILED_BYTES else None
            if self._work is not None:  # a `$ref` to outside is an error, never fetched
                self._validator = validator_for(self._schema, offline=True, pattern_options=_PATTERNS)
        except (ValueError, RecursionError) as error:  # ValidationError is a ValueError
            self.unusable(error.message if isinstance(error, ValidationError) else str(error))
        else:
            if size > MAX_SCHEMA_BYTES:
                self.unusable(f"larger than {MAX_SCHEMA_BYTES} bytes")

    def _explain(self, validator: Validator, work: Work, arguments: Json, values: int, chars: int) -> Unproven:
        if values > MAX_EXPLAINED_VALUES:
            raise self.mismatch(["the arguments hold too many values to say where"])
        costly = work.per_value * values > MAX_EXPLAIN_WORK or work.per_value * chars > MAX_EXPLAIN_CHARS
        if costly or work.quadratic:  # a pattern that ran into our limit fits, perhaps: the process has a higher one
            return Unproven(self, arguments, invalid=not work.quadratic)
        raise self.mismatch(problems(validator, arguments))

    def unusable(self, reason: str) -> None:
        """Stop checking. The log says so once."""
        self._unusable = True
        self.warn(shortened(reason))

    def warn(self, reason: str) -> None:
        if not self._warned:
            self._warned = True
            logger.warning("arguments of %r are not checked, its inputSchema: %r", self._tool_key, reason)

    def job(self, arguments: Json) -> bytes | None:
        """What the check process is given; None where that would be too much."""
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


@dataclass(frozen=True, slots=True)
class Unproven:
    """Arguments whose check, or explanation, may cost too much to be done on the event loop."""

    check: ArgumentCheck
    arguments: Json
    invalid: bool = False  # known already; only the explanation is missing

    def job(self) -> bytes | None:
        return self.check.job(self.arguments)

    def settle(self, lines: Sequence[bytes]) -> None:
        """Act on what the check process said, which may have been ended before or between its lines.

        Raises:
            InvalidArgumentsError: they do not fit.
        """
        verdict, _, reason = (lines[0] if lines else b"").decode().partition(" ")
        if verdict == "valid":
            return
        if verdict == "unusable":
            self.check.unusable(reason)
        elif verdict == "invalid" or self.invalid:
            raise self.check.mismatch(msgspec.json.decode(lines[1]) if len(lines) > 1 else [_TOO_COSTLY])
        else:
            self.check.warn("checking them takes too long")


def _cheap(work: Work, values: int, chars: int) -> bool:
    if work.quadratic and chars > MAX_QUADRATIC_CHARS:
        return False
    return work.per_value * values + work.per_byte * chars <= MAX_CHECK_WORK


def _measured(arguments: Json) -> tuple[int, int]:
    """How many values and characters the arguments hold, at any depth; an upper bound of both where they are many."""
    values, chars = 1, 0
    waiting: list[Any] = [arguments]
    while waiting:
        part = waiting.pop()
        values += len(part)
        if values > MAX_COUNTED_VALUES:
            return _measured_at_once(arguments)
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


def _measured_at_once(arguments: Json) -> tuple[int, int]:
    """A value takes two bytes on the wire with what separates it from the next one."""
    try:
        size = len(msgspec.json.encode(arguments))
    except (ValueError, RecursionError):
        return MAX_CHECK_WORK + 1, 0
    return size // 2, size
