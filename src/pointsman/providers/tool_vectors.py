"""The vectors of a list of tools: one for each tool's own texts, and one for each of its example requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]

NEAR = 0.3  # the cosine from which an example request counts: any two requests have something in common


@dataclass(frozen=True, slots=True)
class ToolVectors:
    own: Vectors  # a row for each tool
    examples: Vectors  # those of one tool after another
    tools: NDArray[np.intp]  # that have examples
    starts: NDArray[np.intp]  # the row of the first example of each of these
    share: float  # of its cosine counts for an example: requests are nearer to one another than to descriptions

    @classmethod
    def of(cls, rows: Sequence[NDArray[np.float16]], share: float) -> ToolVectors:
        """`rows` are the vectors of each tool, at least one: its own first, then those of its examples."""
        counts = np.fromiter(map(len, rows), np.intp, len(rows))
        of_examples = np.ones(counts.sum(), dtype=np.bool_)
        of_examples[np.cumsum(counts) - counts] = False
        vectors = np.concatenate(rows).astype(np.float32)
        tools = (counts > 1).nonzero()[0]
        starts = np.cumsum(counts[tools] - 1) - (counts[tools] - 1)
        return cls(vectors[~of_examples], vectors[of_examples], tools, starts, share)

    def cosines(self, texts: Vectors) -> Vectors:
        """How near each text (a row) is to each tool (a column): to its own texts, or to one of its examples."""
        cosines: Vectors = texts @ self.own.T
        if len(self.tools):
            nearest = np.maximum.reduceat(texts @ self.examples.T, self.starts, axis=1)
            nearest[nearest < NEAR] = -np.inf
            cosines[:, self.tools] = np.maximum(cosines[:, self.tools], self.share * nearest)
        return cosines
