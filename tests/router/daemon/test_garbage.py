"""Reference cycles that lived long, such as closed sessions and replaced servers, are freed before they accumulate."""

from __future__ import annotations

import subprocess
import sys

# In a process of its own, because nothing undoes what is exempted from collection.
PROGRAM = """
import gc
import weakref

from pointsman.router import daemon  # with all that it imports
from pointsman.router.serving import process


class Session:
    def __init__(self):
        self.itself = self


process.collect_garbage_seldom()
assert gc.get_freeze_count() > 10_000
sessions = [Session() for _ in range(1_000)]
for generation in (0, 1, 2):
    gc.collect(generation)  # now the sessions are in the oldest generation
gone = [weakref.ref(session) for session in sessions]
del sessions
requests = 0
while gone[0]() is not None or gone[-1]() is not None:
    Session()
    requests += 1
    assert requests < 200_000, "never collected"
"""


def test_cycles_that_lived_long_are_collected_without_a_request_to_do_so() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
