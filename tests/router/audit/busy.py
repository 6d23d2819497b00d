"""A run that makes calls as fast as it can until it is killed: `python -m tests.router.audit.busy STATE EVERY_S`.

Says `i SEQ` when an intent is written, where a gateway would send the call, and `o SEQ` when its outcome is.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from pointsman.config.model import CurrentConfig, GatewayConfig
from pointsman.router.audit.compaction.compaction import auditing
from tests.router.audit.samples import request

IN_FLIGHT = 8


async def main(state_dir: Path, every_s: float) -> None:
    async with auditing(state_dir, CurrentConfig(GatewayConfig()), every_s=every_s) as log:
        made = 0
        while True:
            records = []
            for _ in range(IN_FLIGHT):
                made += 1
                call = f"{os.getpid()}-{made}"
                records.append((call, log.begin(request(call), "execute", tool_key="a:b", server_id="a")))
                os.write(1, f"i {call}\n".encode())
            await asyncio.sleep(0)
            for call, record in records:
                record.finish("ok", results=1, bytes=made)
                os.write(1, f"o {call}\n".encode())


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), float(sys.argv[2])))
