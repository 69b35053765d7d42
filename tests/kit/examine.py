"""One random program through the whole pipeline: what comes of it.

A program that fails is tried on other values; only one that fails there too is wrong, unless its
values are exact.
"""

import random
import re
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from kit.judge import Fault, Run, Skipped, Undefined
from kit.programs import Program, random_program
from kit.programs.sympy_form import through_sympy
from kit.rounds import rounds

import derive
from derive.api import source
from derive.check import oracle
from derive.errors import DeriveError, LoweringError, SpecError
from derive.memory import loaded
from derive.notation.operation import Operation
from derive.notation.specification import parse


@dataclass(frozen=True)
class Result:
    """What came of one program: ok, skipped, undefined, unsupported or a kind of failure."""

    seed: int
    kind: str
    detail: str = ""

    @property
    def failed(self) -> bool:
        return self.kind not in ("ok", "skipped", "undefined", "unsupported")


def examine(
    seed: int, second_order: bool | None = None, writer: Callable[..., Program] = random_program
) -> Result:
    """The program of that seed; if it fails, on other values once more.

    Without ``second_order`` a share of the programs is differentiated twice. ``writer`` makes the
    program of a seed, and with ``sample`` the same one on other values.
    """
    program = writer(seed)
    checks = drawn(seed, second_order)
    result = tried(program, checks)
    if result.failed and result.kind not in BEFORE and not program.exact:
        again = tried(writer(seed, sample=1), checks)
        if not again.failed:
            return replace(result, kind="skipped", detail=f"a kink: {result.detail}")
    return result


def load(op: Operation) -> Any:
    """The function of one of many programs, whose module is kept nowhere."""
    return loaded(op.name, source(op))


def drawn(seed: int, second_order: bool | None = None) -> set[str]:
    """The checks that the program of that seed gets besides values and gradients."""
    draw = random.Random(f"checks {seed}")
    checks = {check for check, share in SHARES.items() if draw.random() < share}
    if second_order is None:
        return checks
    return checks | {"second"} if second_order else checks - {"second"}


def _as_inferred(program: Program, op: Operation) -> Program:
    """The program with whole numbers for what is inferred to be integers, as by a comparison."""
    whole = {t.name for t in op.inputs if t.kind == "int"}
    tensors = {
        name: np.asarray(np.rint(2 * a), np.int64)
        if name in whole and a is not None and a.dtype.kind == "f"
        else a
        for name, a in program.tensors.items()
    }
    # A tensor of another dtype is no twin.
    alike = program.twins and len({t.kind for t in op.inputs if t.name in program.twins}) == 1
    return replace(program, tensors=tensors, twins=program.twins if alike else None)


def tried(program: Program, checks: set[str]) -> Result:
    """What comes of one program with its arguments."""
    seed = program.seed
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            op = parse(program.text)
            function = load(op)
        except LoweringError as error:
            return Result(seed, "unsupported", str(error))
        except DeriveError as error:
            rightly = any(re.search(text, str(error)) for text in REFUSED)
            return Result(seed, "skipped" if rightly else "rejected", str(error))
        except Exception as error:
            return Result(seed, "crash", _told(error))
        program = _as_inferred(program, op)
        try:
            sizes = oracle.sizes(op, program.tensors, program.parameters)
        except Exception as error:
            return Result(seed, "oracle", _told(error))
        if rounds(op, sizes) > _LONGEST:
            return Result(seed, "skipped", "the loops are too long")
        result = judged(op, function, program, checks)
        if result.kind == "ok" and "sympy" in checks:
            return _spoken(op, program)
        return result


def _spoken(op: Operation, program: Program) -> Result:
    """The same equations in SymPy: the code of those does what the text says."""
    try:
        same = through_sympy(program.text)
        if [t.axes for t in same.inputs] != [t.axes for t in op.inputs]:
            return Result(program.seed, "sympy", "inputs have other axes")
        kinds = ([e.kind for e in (*made.inputs, *made.equations)] for made in (same, op))
        if next(kinds) != next(kinds):
            return Result(program.seed, "skipped", "SymPy drops what tells a kind, or an integer")
        result = judged(op, load(same), program, set())
    except RecursionError as error:
        # SymPy's own rewriting of some sums of powers never ends.
        ours = any(Path(f.filename).is_relative_to(_ENGINE) for f in _frames(error))
        return Result(program.seed, "sympy" if ours else "skipped", _told(error))
    except (LoweringError, SpecError) as error:
        # SymPy drops what cancels, and with it what gave an index its size; log(x - x) is its zoo.
        told = ("size", "index", "ComplexInfinity")
        known = isinstance(error, LoweringError) or any(s in str(error) for s in told)
        return Result(program.seed, "skipped" if known else "sympy", str(error))
    except Exception as error:
        return Result(program.seed, "sympy", _told(error))
    if result.kind == "run" and "out of" in result.detail and program.is_strange:
        # A sum of SymPy's folds brackets into branches, whose condition is asked everywhere then.
        return replace(result, kind="skipped")
    return replace(result, kind="sympy" if result.failed else result.kind)


_LONGEST = 20_000_000
"""A program whose loops visit more than this is not tried: they would take minutes."""
REFUSED = (
    *("has no size", "read a composite of other parts", "is unknown; declare the axis"),
    "is infinite or out of the range of float64",
    r"is not a real number \[D022\]\n",
    r"division by zero in \w+\([^\w]*[\d/ +*().-]+\) \[D022\]\n",
)
"""What is said of a letter or an axis whose size does not follow, and of 1/(0.5 - 0.5)."""
BEFORE = {"crash", "rejected"}
"""Kinds that no values make."""
SHARES = {
    "differences": 0.05,
    "second": 0.3,
    "vmap": 0.07,
    "forward": 0.07,
    "missing": 0.3,
    "sympy": 0.04,
}
"""How many programs each check is made on, besides values and gradients."""


def judged(op: Operation, function: Any, program: Program, checks: set[str]) -> Result:
    """What the checks say of the generated function."""
    run = Run(op, function, program)
    try:
        run.check(checks)
    except Skipped as reason:
        return Result(program.seed, "skipped", str(reason))
    except Undefined as place:
        return Result(program.seed, "undefined", str(place))
    except Fault as fault:
        return Result(program.seed, fault.kind, str(fault))
    except Exception as error:
        return Result(program.seed, "run", _told(error))
    return Result(program.seed, "ok")


_ENGINE = Path(derive.__file__).parent


def _frames(error: Exception) -> list[traceback.FrameSummary]:
    return list(traceback.extract_tb(error.__traceback__))


def _told(error: Exception) -> str:
    """An unexpected error with the places it comes from."""
    frames = _frames(error)[-2:]
    places = ", ".join(f"{f.filename.rsplit('/', 1)[-1]}:{f.lineno} {f.name}" for f in frames)
    return f"{type(error).__name__}: {str(error)[:300]} ({places})"
