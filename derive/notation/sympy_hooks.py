"""Apply `derive.notation.sum_limits` to SymPy's ``Sum`` and ``Product`` when SymPy is imported.

``import derive`` does not import SymPy, which is slow and needed only for SymPy equations. Either
import order makes ``Sum(A[i, k]*B[k, j], k)`` valid.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_LESSON = "derive.notation.sum_limits"


def teach() -> None:
    """Patch SymPy now if it is imported already, else when it is imported."""
    if "sympy" in sys.modules:
        import_module(_LESSON)
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """An import hook that waits for SymPy."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "sympy":
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _SympyLoader(spec.loader)  # type: ignore[assignment]
        return spec


class _SympyLoader:
    """Loads SymPy with its own loader, then patches it."""

    def __init__(self, own: Any) -> None:
        self._own = own

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._own.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__loader__ = module.__spec__.loader = self._own
        self._own.exec_module(module)
        import_module(_LESSON)
