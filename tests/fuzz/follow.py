"""One target under atheris, which chooses its inputs by the branches they reach. Started by `tests.fuzz`.

python -m tests.fuzz.follow TARGET SECONDS CORPUS
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import atheris  # type: ignore[import-untyped, import-not-found, unused-ignore]

from tests.fuzz import MAX_BYTES

with atheris.instrument_imports(include=["pointsman"]):
    from tests.fuzz.targets import TARGETS, within_bounds


def main(name: str, seconds: float, corpus: str) -> None:
    logging.disable(logging.CRITICAL)
    target = TARGETS[name]
    dictionary = Path(corpus) / "tokens"
    tokens = [token for token in (*target.values, *target.syntax) if len(token) < 64]
    dictionary.write_text("".join(f'"{_escaped(token)}"\n' for token in tokens))
    options = [f"-max_total_time={max(1, int(seconds))}", f"-max_len={MAX_BYTES}", f"-dict={dictionary}"]
    arguments = [sys.argv[0], *options, f"-artifact_prefix={corpus}/", corpus]
    atheris.Setup(arguments, lambda data: within_bounds(target, data))
    atheris.Fuzz()


def _escaped(token: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in token)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), sys.argv[3])
