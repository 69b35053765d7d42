"""The function of a value and its gradients together: derived, lowered and loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from derive.calculus.unit import Unit
from derive.errors import no_recursion_leaves
from derive.loaded import function
from derive.lowering.joint import Joint, joint
from derive.lowering.lowering_input import frame_of
from derive.module.checks import checks, fill_absent_lines, one_dtype
from derive.module.docstrings import document_joint
from derive.module.joint import emit_joint
from derive.module.name_mangling import coded
from derive.module.runtime import standalone
from derive.notation.operation import (
    Operation,
    check_operation,
    known_names,
    known_option,
    known_target,
    without_choice,
)
from derive.pipeline import differentiated, lowered
from derive.reports.presentation_names import PresentationNames, formula


@no_recursion_leaves
def value_and_grad_source(
    op: Operation,
    wrt: Sequence[str] | None = None,
    option: str | None = None,
    of: str | None = None,
) -> str:
    """Return the Python source of the function that `value_and_grad` imports.

    The arguments are those of `value_and_grad`.

    >>> import derive
    >>> op = derive.parse("op mse(x[n], y[n]) -> L; L = mean[n]((x[n] - y[n])**2)")
    >>> "def mse_value_and_grad(" in derive.value_and_grad_source(op)
    True
    """
    check_operation(op)
    chosen = without_choice(op, known_option(op, option))
    wanted, target, code = known_names(chosen, wrt), known_target(chosen, of), coded(chosen)
    derived, made = _derive_joint(chosen, wanted, target)
    if code.given:
        called = {given: name for name, given in code.given.items()}
        asked = None if wanted is None else [called.get(name, name) for name in wanted]
        _, made = _derive_joint(code.operation, asked, called.get(target, target))
    gradients = [
        (code.display_name(name), variable, value) for name, variable, value in made.gradients
    ]
    if wanted is not None:
        gradients.sort(key=lambda entry: wanted.index(entry[0]))
    made = replace(made, gradients=tuple(gradients))
    speech = PresentationNames.of(chosen, derived.lets)
    every = (*derived.backward.adjoints, *derived.backward.gradients)
    cotangents = [(c.name, code.display_name(c.output)) for c in made.cotangents]
    doc = document_joint(chosen, [formula(a, speech) for a in every], cotangents)
    tests = [
        *checks(code.operation, frame_of(code.operation)),
        *one_dtype(code.operation),
        *fill_absent_lines(code.operation),
    ]
    return standalone(emit_joint(_joint_name(op), code, made, tests, doc))


def _joint_name(op: Operation) -> str:
    return f"{op.name}_value_and_grad"


def _derive_joint(op: Operation, wrt: Sequence[str] | None, of: str) -> tuple[Unit, Joint]:
    """Return the derivation and the joint program of outputs and gradients."""
    derived = differentiated(op, wrt, of)
    return derived, lowered(derived, joint)


def value_and_grad(
    op: Operation,
    wrt: Sequence[str] | None = None,
    option: str | None = None,
    of: str | None = None,
) -> Any:
    """Return one function that computes outputs and gradients together, without autograd.

        f(*tensors, **parameters)  ->  outputs, {name: d of / d name}

    Args:
        op: the operation.
        wrt: the float inputs and equations to differentiate with respect to. Default: all float
            inputs. The adjoint of a named equation is computed on its own.
        option: an option of its choice parameter. Default: the first one.
        of: the output to differentiate. Default: the only float output, or the only one without
            axes. The cotangent of an output without axes is 1; for any other, the function takes
            the cotangent ``G`` with the shape of the output.

    Raises:
        DeriveError: a name has no gradient, or ``of`` is needed.

    >>> import derive, torch
    >>> op = derive.parse("L = mean[n]((x[n] - y[n])**2)")
    >>> loss, gradients = derive.value_and_grad(op, wrt=["x"])(torch.ones(3), torch.zeros(3))
    >>> gradients["x"]
    tensor([0.6667, 0.6667, 0.6667])
    """
    text, name = value_and_grad_source(op, wrt, option, of), _joint_name(op)
    return function(name, text)
