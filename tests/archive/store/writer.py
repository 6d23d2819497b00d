"""A process that writes to the store in its environment, embeds and cleans up continuously until it is killed."""

from __future__ import annotations

import os
import random
import sys
from dataclasses import replace
from itertools import count

from pointsman.archive.model.documents import Citation, PreparedDocument
from pointsman.archive.store.base import Space
from tests.archive.engines import place_in
from tests.archive.sample_documents import fill, prepared

SPACE = Space("test", "zeros", 4)
WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu"]


def main(seed: int) -> None:
    chance = random.Random(seed)
    storage = place_in(os.environ).open()
    fill(storage)
    print("writing", flush=True)
    for turn in count():
        ids = [f"{chance.randrange(12)}.md" for _ in range(chance.randint(1, 3))]
        storage.documents.put_documents("notes", [_document(id_, chance) for id_ in ids])
        if turn % 3 == 0:
            storage.documents.remove_documents("notes", [f"{chance.randrange(12)}.md"])
        if turn % 2:
            waiting = storage.vectors.pending(SPACE, 20)
            storage.vectors.put(SPACE, [(each.number, bytes(16)) for each in waiting])
        if turn % 5 == 0:
            storage.housekeeper.tidy()


def _document(id_: str, chance: random.Random) -> PreparedDocument:
    made = prepared(id_, *(" ".join(chance.choices(WORDS, k=40)) for _ in range(chance.randint(1, 6))))
    return replace(made, citations=(Citation("inline", f"{chance.randrange(12)}.md", "see there", 1.0, 1),))


if __name__ == "__main__":
    main(int(sys.argv[1]))
