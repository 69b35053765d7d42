"""Index the equations by a tensor they read, to find candidate instances in an expression."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from derive.algebra.expr import Expr, tensors
from derive.calculus.lets import Let, Lets


class DefinitionIndex:
    """The equations of the spec that satisfy ``fits``, each indexed under a tensor it reads.

    An instance of an equation reads every tensor that the equation does. Equations that are added
    later are found too.
    """

    def __init__(self, lets: Lets, fits: Callable[[Let], bool]) -> None:
        self._lets = lets
        self._fits = fits
        self._seen = 0
        self._under: dict[str | None, list[tuple[int, Let]]] = {}

    def like(self, e: Expr) -> list[Let]:
        """The equations that read only tensors of e, in order of definition."""
        self._update()
        there = tensors(e)
        found = list(self._under.get(None, ()))
        for name in there:
            found += (
                entry for entry in self._under.get(name, ()) if tensors(entry[1].body) <= there
            )
        return [let for _, let in sorted(found, key=lambda entry: entry[0])]

    def _update(self) -> None:
        given = self._lets.given
        new = islice(given.values(), self._seen, None) if len(given) > self._seen else ()
        for n, let in enumerate(new, self._seen):
            if self._fits(let):
                # Index under the tensor with the fewest entries: many may read the same weight.
                names = sorted(tensors(let.body))
                key = min(names, key=lambda name: len(self._under.get(name, ())), default=None)
                self._under.setdefault(key, []).append((n, let))
        self._seen = len(given)
