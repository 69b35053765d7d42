"""Restore the attributes of a module that runs to be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def restored_attributes(function: Any) -> Iterator[Callable[[], list[str]]]:
    """Restore the attributes of a module and its submodules at exit.

    Yields a function that returns the names of those that changed.
    """
    import torch

    modules = dict(function.named_modules()) if isinstance(function, torch.nn.Module) else {}
    before = {name: dict(vars(m)) for name, m in modules.items()}
    found: list[str] = []
    try:
        yield lambda: found
    finally:
        for name, m in modules.items():
            old, new = before[name], m.__dict__
            for key in [k for k in {**old, **new} if new.get(k, m) is not old.get(k, m)]:
                found.append(f"{name}.{key}" if name else key)
            new.clear()
            new.update(old)
