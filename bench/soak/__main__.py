"""`python -m bench.soak [--seconds N]`: the mixed load, then whether memory is released. Exits 1 if either fails."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys

from bench.soak.memory import memory_comes_back
from bench.soak.mixed import RATE, mixed_load

SECONDS = 120.0


async def main(options: argparse.Namespace) -> int:
    passed = True
    if options.only != "memory":
        passed = await mixed_load(options.seconds, options.rate)
    if options.only != "mixed":
        passed = await memory_comes_back() and passed
    print("PASSED" if passed else "FAILED")
    return 0 if passed else 1


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    default_s = float(os.environ.get("SOAK_SECONDS") or SECONDS)
    parser.add_argument(
        "--seconds", type=float, default=default_s, help="of the mixed load (SOAK_SECONDS; %(default)s)"
    )
    parser.add_argument("--rate", type=float, default=RATE, help="requests a second (%(default)s)")
    parser.add_argument("--only", choices=("mixed", "memory"), help="run one of the two phases")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(asyncio.run(main(read_options())))
