"""How much is read of a file or a module: what people look at now is likely what they ask about."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from pointsman.archive.model.context import Access, ContextItem

HALF_LIFE_S = 14 * 86_400.0


class Popularity:
    """From 0 to 1, the most read file or module being 1."""

    def __init__(self, accesses: Iterable[Access], now: float, module_of: Callable[[str], str | None]) -> None:
        files: dict[str, float] = {}
        modules: dict[str, float] = {}
        for access in accesses:
            weight = access.count * 0.5 ** (max(0.0, now - access.last) / HALF_LIFE_S)
            files[access.path] = files.get(access.path, 0.0) + weight
            module = module_of(access.path)
            if module is not None:
                modules[module.casefold()] = modules.get(module.casefold(), 0.0) + weight
        self._files = _leveled(files)
        self._modules = _leveled(modules)

    def of(self, item: ContextItem) -> float:
        by_file = self._files.get(item.path, 0.0) if item.path else 0.0
        by_module = self._modules.get(item.module.casefold(), 0.0) if item.module else 0.0
        return max(by_file, by_module)


def _leveled(weights: dict[str, float]) -> dict[str, float]:
    """By logarithm: ten reads are not ten times as telling as one."""
    most = max((math.log1p(weight) for weight in weights.values()), default=0.0)
    return {name: math.log1p(weight) / most for name, weight in weights.items()} if most else {}
