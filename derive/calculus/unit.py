"""An operation on its way through the passes of the derivation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from derive.algebra.inequalities import Bounds
from derive.calculus.adjoint import Backward
from derive.calculus.lets import Lets
from derive.notation.operation import Operation


def _no_lets() -> Lets:
    return Lets({}, set())


@dataclass(frozen=True)
class Unit:
    """One option of an operation, and what the passes have made of it so far."""

    given: Operation
    """The operation under the names of the user."""
    operation: Operation
    """The operation as the passes have rewritten it."""
    wrt: tuple[str, ...] | None = None
    """The names to differentiate with respect to; None stands for all float inputs."""
    of: tuple[str, ...] | None = None
    """The outputs or equations to differentiate; None stands for all float outputs."""
    added: tuple[str, ...] = ()
    """The equations to whose adjoints cotangents are added later."""
    display_names: Mapping[str, str] = field(default_factory=dict)
    """canonical name -> name of the user."""
    lets: Lets = field(default_factory=_no_lets)
    backward: Backward = field(
        default_factory=lambda: Backward(_no_lets(), (), (), (), frozenset(), Bounds())
    )
    """The adjoints and gradients, or the tangents of forward mode."""

    @classmethod
    def start(
        cls, op: Operation, wrt: Sequence[str] | None = None, of: Sequence[str] | None = None
    ) -> Unit:
        """Return the unit before the first pass."""
        wrt, of = (None if names is None else tuple(names) for names in (wrt, of))
        return cls(op, op, wrt, of)

    @property
    def shown_names(self) -> Mapping[str, str]:
        """canonical name -> shown name, with the names that the passes introduced."""
        return {**self.display_names, **self.lets.display_names}

    def canonical(self, names: Sequence[str] | None) -> list[str] | None:
        """Return canonical names of names of the user."""
        given = {name: canonical for canonical, name in self.display_names.items()}
        return None if names is None else [given[name] for name in names]

    def apart(self) -> Unit:
        """Return a copy whose lets a pass may add to."""
        lets = self.lets.apart()
        return replace(self, lets=lets, backward=replace(self.backward, lets=lets))

    def with_backward(self, backward: Backward) -> Unit:
        """Return the unit with these formulas and their lets."""
        return replace(self, lets=backward.lets, backward=backward)
