"""What a process imports: a library, only where it is used; a public name, when it is asked for."""

import subprocess
import sys
from importlib import import_module
from pkgutil import iter_modules

import pytest
from kit.command import run
from kit.each import each_row

import derive

HEAVY = ("jinja2", "lark", "mpmath", "numpy", "rich", "sympy", "torch")
ENGINE = ("derive.algebra", "derive.calculus", "derive.lowering", "derive.pipeline")


def imported(code: str) -> set[str]:
    """The modules that a process of its own has after this code."""
    whole = f"import sys\n{code}\nprint('\\n', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", whole], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def command(*words: str) -> str:
    """The code of a command, in the process that asks what is imported."""
    return (
        "from derive.command.cli import app\n"
        f"try: app({list(words)})\n"
        "except SystemExit as end: assert end.code == 0, end.code"
    )


def test_import_derive_imports_nothing_that_is_not_asked_for():
    found = imported("import derive")
    assert not found & {*HEAVY, *ENGINE, "typer"}


@pytest.mark.parametrize("words", [["--version"], ["list"]])
def test_neither_libraries_nor_engine_are_needed_for(words):
    assert not imported(command(*words)) & {*HEAVY, *ENGINE}


def test_formulas_need_the_parser_alone_in_this_process():
    """The spec is read in another one, which needs SymPy; kernels have equations to be read."""
    assert imported(command("show", "softmax")) & {*HEAVY} <= {"lark", "mpmath"}


def test_a_derivation_of_text_needs_the_parser_and_the_template_alone():
    """And mpmath, for numbers in the equations of kernels."""
    code = "import derive; derive.source(derive.parse('y[i] = sum[k](exp(A[i,k]) - A[k,i])'))"
    assert imported(code) & {*HEAVY} - {"mpmath"} == {"jinja2", "lark"}


@each_row("name", derive.__all__)
def test_a_public_name_is_found_where_it_is_defined(name):
    found = getattr(derive, name)
    assert name in dir(derive)
    assert getattr(import_module(found.__module__), name) is found


def test_no_module_takes_the_place_of_a_public_name():
    assert not {module.name for module in iter_modules(derive.__path__)} & {*derive.__all__}


def test_a_name_that_derive_has_not():
    with pytest.raises(AttributeError, match="'derive' has no attribute 'backwards'"):
        _ = derive.backwards


def test_all_public_names_are_imported_with_a_star():
    code = "from derive import *; assert parse('y[i] = A[i]').name == 'op'; source, Softmax"
    assert run(sys.executable, "-c", code).returncode == 0
