"""The public names: each has a docstring, and an example in it that runs as it stands."""

import doctest
import inspect
from collections.abc import Iterator
from typing import Any

import pytest
from kit.each import each_row

import derive
from derive.auditing.report import Report
from derive.cost.size_formula import Amount
from derive.notation import heads
from derive.reports.formula import DerivationStep, Formula
from derive.reports.result import Cost, Derivation, Tangents

RESULTS = (Derivation, Tangents, Formula, Cost)
"""What public functions return, with an example each."""
PLAIN = (DerivationStep, Amount, Report)
"""What these give in turn, shown in the examples of others."""
ERRORS = {name for name in derive.__all__ if name.endswith(("Error", "Warning"))}
SHARED = {**dict.fromkeys(ERRORS, "derive.errors"), **dict.fromkeys(heads.MADE, heads.__name__)}
"""Small names, and the module whose example is theirs too."""
FLAGS = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL

NAMED = {name: getattr(derive, name) for name in derive.__all__}
SHOWN = NAMED | {kind.__name__: kind for kind in RESULTS}
EVERY = SHOWN | {kind.__name__: kind for kind in PLAIN}


def examples(text: str, name: str) -> doctest.DocTest:
    return doctest.DocTestParser().get_doctest(text, {}, name, None, 0)


def failures(text: str, name: str) -> str:
    """What an example prints that it should not; it knows nothing but what it imports."""
    told: list[str] = []
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    runner.run(examples(text, name), out=told.append)
    return "".join(told)


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that a class of ours defines."""
    for name, member in vars(kind).items():
        if not name.startswith("_") and not inspect.isclass(member):
            if callable(member) or isinstance(member, property) or hasattr(member, "attrname"):
                yield name, member


@each_row("name", EVERY)
def test_a_public_name_has_a_docstring(name):
    text = inspect.cleandoc(EVERY[name].__doc__ or "")
    assert text
    assert text[0].isupper() or text[0] in "`0123456789" or name in heads.MADE
    first = text.splitlines()[0]
    assert first.endswith((".", ":", "`.")) or name in heads.MADE


@each_row("name", EVERY)
def test_a_public_member_has_a_docstring(name):
    kind = EVERY[name]
    if inspect.isclass(kind) and kind.__module__.startswith("derive."):
        bare = [member for member, value in members(kind) if not value.__doc__]
        assert not bare


@each_row("name", [name for name in SHOWN if name not in SHARED])
def test_a_public_name_has_an_example(name):
    text = SHOWN[name].__doc__
    assert examples(text, name).examples
    assert not failures(text, name)


@pytest.mark.parametrize("module", ["derive", *dict.fromkeys(SHARED.values())])
def test_a_module_has_an_example(module):
    text = inspect.getdoc(__import__(module, fromlist=["_"]))
    assert examples(text, module).examples
    assert not failures(text, module)
