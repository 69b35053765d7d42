"""Modules as a folder has them: they call the runtime beside them, as ``rt.where(..)``."""

import sys
from types import ModuleType
from typing import Any

from derive import api
from derive.memory import imported
from derive.module import runtime
from derive.notation.operation import Operation

sys.modules["texts"] = ModuleType("texts")
rt = sys.modules["texts._runtime"] = imported("texts._runtime", runtime.runtime())
"""The runtime as a module."""


def source(op: Operation, *options: Any, **named: Any) -> str:
    """The source of an operation in this form."""
    return api.source(op, *options, **named, standalone=False)


def module(name: str, text: str) -> ModuleType:
    """A module of this form, imported from its text; its package has the runtime."""
    return imported(f"texts.{name}", text)
