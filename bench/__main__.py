"""`make bench`: all measurements in one run."""

from __future__ import annotations

import asyncio
import os
import platform

from bench.calls import calls
from bench.discovery import discovery
from bench.fallback import fallback
from bench.first_discovery import first_discovery
from bench.growth import growth
from bench.search import search
from bench.service import service
from bench.start import start
from bench.trace import trace
from bench.workers import workers


async def main() -> None:
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores. Compare figures of one run only.\n")
    await calls()
    print()
    await workers()
    print()
    await growth()
    await discovery()
    print()
    await first_discovery()
    print()
    await fallback()
    print()
    await search()
    print()
    await service()
    print()
    await start()
    print()
    await trace()


if __name__ == "__main__":
    asyncio.run(main())
