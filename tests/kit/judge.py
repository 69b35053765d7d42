"""One call of a generated function, held against what the specification says.

Values are held against loops (`derive.check.oracle`). Gradients are held against autograd of the
torch evaluator of the specification (`derive.check.reference`), and against autograd of the
generated forward without its backward; where asked, against differences of the loops, to second
order, forwards, and under ``torch.func.vmap``.

A difference is a fault unless the mathematics is ill-conditioned where it was evaluated: that is
asked of the reference alone, whose results must then move by more than the difference when its
inputs move by a rounding error. Programs of exact values are never excused.

Where the specification computes an infinity or a nan on the way to a finite number, as the
logarithm of a mean of nothing that nothing reads, a gradient that is nan is counted by itself, as
undefined: the code is not wrong there, but it is not right either.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from kit.programs import Program
from kit.programs.parts import STRANGE
from torch.autograd import forward_ad

from derive.algebra.expr import Add, Call, Const, Expr, Mul, Pow, Reduce, Rel, walk
from derive.algebra.interpret import Machine
from derive.algebra.reductions import KINDS
from derive.check import oracle, reference
from derive.notation.operation import Operation

BIG = 1e6
"""Values beyond this say more of rounding than of the gradient."""
NO_EXTREMUM = "Expected reduction dim .*(non-zero size|numel\\(\\) == 0)"
"""What torch says of an extremum over an axis of size 0."""

ROUNDING = 1e-12
"""By how much inputs move, relatively, to see whether a difference may be rounding."""

Tensors = dict[str, torch.Tensor | None]


class Fault(Exception):
    """A result that is not what the specification says."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


class Skipped(Exception):
    """A program that says nothing here."""


class Undefined(Exception):
    """A nan where something is not finite on the way."""


class Run:
    """One call of a generated function, and what the specification says of it."""

    def __init__(self, op: Operation, function: Any, program: Program) -> None:
        self.op = op
        self.function = function
        self.program = program
        self.inputs: Tensors = {
            name: None if array is None else torch.from_numpy(array)
            for name, array in program.tensors.items()
        }
        if program.twins:
            self.inputs[program.twins[1]] = self.inputs[program.twins[0]]
        self.smooth = [n for n, t in self.inputs.items() if t is not None and t.is_floating_point()]
        if program.twins:
            self.smooth.remove(program.twins[1])
        self.random = np.random.default_rng((program.seed, 2))

    def check(self, checks: set[str]) -> None:
        expected = self.looped()
        leaves = self.leaves()
        try:
            made = self.called(leaves)
        except (IndexError, RuntimeError) as error:
            if re.search(NO_EXTREMUM, str(error)):
                raise Skipped("an extremum over an axis of size 0") from error
            if "out of" not in str(error) or not (self.program.is_strange and self.is_empty()):
                raise
            # Loops read nothing at any position then; code reads before it multiplies.
            raise Skipped("a read out of range beside an axis without values") from error
        self.values(expected, made)
        floats = [name for name, array in expected.items() if array.dtype.kind == "f"]
        finite = [np.isfinite(expected[name]) for name in floats]
        pairs = zip(floats, finite, strict=True)
        if any(np.abs(expected[n][m]).max(initial=0) > BIG for n, m in pairs):
            raise Skipped("large")
        chosen = [n for n in floats if self.random.random() < 0.6] if "missing" in checks else []
        chosen = chosen or floats
        # Where a value is not finite its gradient means nothing.
        weights = {
            n: self.like(torch.from_numpy(np.asarray(expected[n])))
            * torch.from_numpy(np.asarray(np.isfinite(expected[n])))
            for n in chosen
        }
        if not weights:
            return
        wanted = self.referred(weights, self.inputs)
        if not all(bool((g.abs() < BIG).all()) for g in wanted):
            raise Skipped("the gradient is large or not finite")
        found = self.pulled(made, weights, leaves)

        def ours(n: int) -> list[torch.Tensor]:
            # Ties stay ties where the weights move instead.
            given = self.required(self.inputs if self.program.exact else self.moved(n))
            near = self.nearly(weights, n) if self.program.exact else weights
            return self.pulled(self.called(given), near, given)

        def referred(inputs: Tensors) -> list[torch.Tensor]:
            return self.referred(weights, inputs)

        self.compare("gradient", self.smooth, found, wanted, referred, ours)
        if not self.program.exact:
            with forward_ad.dual_level():
                plain = self.leaves()
                traced = self.pulled(self.called(plain), weights, plain)
            self.compare("plain", self.smooth, traced, wanted, referred, ours)
        if "differences" in checks and not self.program.exact:
            self.differences(weights, found)
        if "second" in checks:
            self.second(weights)
        if "forward" in checks:
            self.forward(weights, wanted)
        if "vmap" in checks:
            self.batched()

    # What is computed

    def looped(self) -> dict[str, np.ndarray]:
        try:
            with np.errstate(all="ignore"):
                return oracle.outputs(self.op, self.program.tensors, self.program.parameters)
        except IndexError as error:
            if "its guard holds" in str(error):
                raise Skipped("a bracket that does not keep a read on its axis") from error
            self.refuse_position_of_none(error)
            # A bracket takes an access for guarded that its sizes do not keep in range.
            try:
                made = self.called(self.inputs)
            except (IndexError, RuntimeError):
                raise Skipped("a read out of range") from error
            ways, name = [[self.moved_in(0), self.moved_in(1)]], str(error).partition(":")[0]
            if name in self.inputs:
                ways.append([{**self.inputs, name: 2 * self.inputs[name] + 1}])
            if any(all(self.are_made(made, given) for given in way) for way in ways):
                raise Skipped("what is read out of range cancels") from error
            raise Fault("oracle", f"{error}, and the code reads it") from error
        except OverflowError as error:
            raise Skipped("an integer maximum or minimum of nothing") from error
        except Exception as error:
            raise Fault("oracle", f"{type(error).__name__}: {error}") from error

    def refuse_position_of_none(self, error: Exception) -> None:
        """What is None has no positions: nothing is read there."""
        if self.inputs.get(str(error).partition(":")[0], 0) is None:
            raise Skipped("a position of what is not there") from error

    def moved_in(self, position: int) -> Tensors:
        """The inputs with that position where there was none of any axis."""
        given = dict(self.inputs)
        for name, t in self.inputs.items():
            if t is not None and t.dtype == torch.int64:
                given[name] = t.where(~torch.from_numpy(np.isin(t.numpy(), STRANGE)), position)
        return given

    def are_made(self, made: Sequence[torch.Tensor], inputs: Tensors) -> bool:
        """Whether other inputs give the same."""
        pairs = zip(made, self.called(inputs), strict=True)
        return all(torch.allclose(a, b, equal_nan=True) for a, b in pairs)

    def leaves(self) -> Tensors:
        return self.required(self.inputs)

    def required(self, inputs: Tensors) -> Tensors:
        """Copies that require gradients."""
        made = {
            name: t if t is None or name not in self.smooth else t.clone().requires_grad_()
            for name, t in inputs.items()
        }
        if self.program.twins:
            made[self.program.twins[1]] = made[self.program.twins[0]]
        return made

    def called(self, tensors: Tensors) -> tuple[torch.Tensor, ...]:
        """The outputs of the generated function."""
        given = [tensors[t.name] for t in self.op.inputs]
        made = self.function(*given, **self.program.parameters)
        return made if isinstance(made, tuple) else (made,)

    def evaluated(self, tensors: Tensors) -> dict[str, torch.Tensor]:
        """Every equation as the reference evaluates it."""
        try:
            return reference.values(self.op, tensors, self.program.parameters)
        except Exception as error:
            self.refuse_position_of_none(error)
            if isinstance(error, IndexError) and self.program.is_strange and self.is_empty():
                raise Skipped("a read out of range that an empty axis does not ask for") from error
            raise Fault("reference", f"{type(error).__name__}: {error}") from error

    def specified(self, tensors: Tensors) -> dict[str, torch.Tensor]:
        """The outputs as the reference evaluates them, without axes that are kept."""
        made = self.evaluated(tensors)
        return {n: made[n] for n in self.names()}

    def referred(
        self, weights: Mapping[str, torch.Tensor], inputs: Tensors, graph: bool = False
    ) -> list[torch.Tensor]:
        """The gradients that autograd gives of the reference."""
        leaves = self.required(inputs) if not graph else inputs
        made = self.specified(leaves)
        total = sum((made[n] * w.reshape(made[n].shape)).sum() for n, w in weights.items())
        return _gradients(total, [leaves[n] for n in self.smooth], graph)

    def pulled(
        self, made: Sequence[torch.Tensor], weights: Mapping[str, torch.Tensor], leaves: Tensors,
        graph: bool = False,
    ) -> list[torch.Tensor]:  # fmt: skip
        """The gradients that the generated function gives; other outputs have no cotangent."""
        named = dict(zip(self.names(), made, strict=True))
        live = [n for n in weights if named[n].requires_grad]
        wanted = [leaves[n] for n in self.smooth]
        if not live or not wanted:
            return [torch.zeros_like(t) for t in wanted]
        found = torch.autograd.grad(
            [named[n] for n in live], wanted, [weights[n] for n in live],
            allow_unused=True, create_graph=graph,
        )  # fmt: skip
        return [torch.zeros_like(t) if g is None else g for t, g in zip(wanted, found, strict=True)]

    def names(self) -> tuple[str, ...]:
        return oracle.selected(self.op, self.program.parameters)

    def like(self, t: torch.Tensor | None) -> torch.Tensor:
        """Random numbers in the shape of t."""
        assert t is not None
        return torch.from_numpy(np.asarray(self.random.uniform(0.5, 1.5, tuple(t.shape))))

    # What is compared

    def values(self, expected: Mapping[str, np.ndarray], made: Sequence[torch.Tensor]) -> None:
        close = True
        for (name, array), tensor in zip(expected.items(), made, strict=True):
            value = tensor.detach().numpy()
            if value.shape != array.shape:
                raise Fault("shape", f"{name} has shape {value.shape}, not {array.shape}")
            if value.dtype.kind != array.dtype.kind:
                raise Fault("dtype", f"{name} is {value.dtype}, not {array.dtype}")
            close = close and bool(np.allclose(value, array, rtol=1e-9, atol=1e-9, equal_nan=True))
        if close:
            return
        arrays = [torch.from_numpy(np.asarray(a)) for a in expected.values()]
        shapes = [a.shape for a in arrays]

        def of(tensors: Tensors) -> list[torch.Tensor]:
            found = self.specified(tensors).values()
            return [v.detach().reshape(s) for v, s in zip(found, shapes, strict=True)]

        self.compare("value", self.names(), [t.detach() for t in made], arrays, of)

    def compare(
        self,
        kind: str,
        names: Sequence[str],
        found: Sequence[torch.Tensor],
        wanted: Sequence[torch.Tensor],
        again: Callable[[Tensors], Sequence[torch.Tensor]],
        ours: Callable[[int], Sequence[torch.Tensor]] | None = None,
    ) -> None:
        """A fault where they differ by more than rounding can move what is wanted.

        With ``ours``, which computes what is found, also by more than it moves that: an exact 0
        may come of the loops where terms of 1e13 cancel in code.
        """
        size = max((float(w.double().abs().nan_to_num(0, 0, 0).max()) for w in wanted if w.numel()),
                   default=0.0)  # fmt: skip
        if kind == "plain":
            # The plain forward computes what no branch takes.
            found = [torch.where(f.isnan(), w, f) for f, w in zip(found, wanted, strict=True)]
        pairs = list(zip(found, wanted, strict=True))
        if all(_close(f, w, 1e-8 * max(1.0, size)) for f, w in pairs):
            return
        spread = [torch.zeros_like(w, dtype=torch.float64) for w in wanted]
        for n in range(0 if self.program.exact else 4):
            moved = again(self.moved(n))
            spread = [
                torch.maximum(s, (m.double() - w.double()).abs().nan_to_num(torch.inf))
                for s, m, w in zip(spread, moved, wanted, strict=True)
            ]
        for name, (f, w), s in zip(names, pairs, spread, strict=True):
            near = 1e-8 * max(1.0, size) + 1e3 * float(s.max() if s.numel() else 0)
            if not _close(f, w, near) and not (
                ours is not None and self.is_rounding(found, wanted, ours)
            ):
                self.differ(kind, name, f, w, near)
        raise Skipped(f"ill-conditioned: {kind}")

    def is_rounding(
        self,
        found: Sequence[torch.Tensor],
        wanted: Sequence[torch.Tensor],
        ours: Callable[[int], Sequence[torch.Tensor]],
    ) -> bool:
        """Whether what is found is as far away again where what it is of moves by rounding.

        Dyadic numbers round in few ways, of which one move may meet the same.
        """
        away = [torch.zeros_like(f) for f in found]
        for n in range(4 if self.program.exact else 1):
            again = zip(away, found, ours(n), strict=True)
            away = [torch.maximum(a, (f - m).abs()) for a, f, m in again]
        pairs = zip(found, wanted, away, strict=True)
        return all(bool(((f - w).abs() <= 10 * a + 1e-8).all()) for f, w, a in pairs)

    def differ(
        self, kind: str, name: str, found: torch.Tensor, wanted: torch.Tensor, near: float
    ) -> None:
        """The fault that they differ; a nan alone is none where nothing better is defined."""
        # Brackets guard whole products, so a 0 times an infinity may come out as 0.
        nothing = wanted.isnan() | (~wanted.isfinite() & ~found.isfinite())
        undefined, disputed, compared, averaged = self.undefined()
        of_nothing = self.is_infinite_of_nothing() or self.is_empty() or averaged
        either = found.isnan() | nothing if of_nothing else nothing
        either = either if kind == "value" else found.isnan()
        close = _close(torch.where(either, wanted, found), wanted, near)
        # An extremum of nothing is infinite also where no bracket lets the loops ask for it.
        undefined = undefined or self.has_an_extremum_of_nothing()
        # Where the values agree, so do the branches.
        if disputed or (close and undefined) or (compared and kind == "value"):
            raise Undefined(f"{kind} of {name}")
        wrong = ~torch.isclose(found.double(), wanted.double(), 1e-7, 1e-7, equal_nan=True)
        raise Fault(kind, f"of {name}: {_few(found[wrong])}, not {_few(wanted[wrong])}")

    def undefined(self) -> tuple[bool, bool, bool, bool]:
        """Whether the loops meet an infinity, a nan or an empty axis, what is disputed, a nan
        that is compared, or a mean of nothing.

        A root of -inf is a nan to them, as of every negative number, and inf to torch, as IEEE
        has it; and which of several wins where one is a nan, or its sign, is nothing to rely on.
        """
        met: list[bool] = []
        disputed: list[bool] = []
        compared: list[bool] = []
        averaged: list[bool] = []
        compiled = Machine.compile
        every = [e for q in self.op.equations for e in walk(q.body)]
        chooses = any(
            (isinstance(e, Reduce) and e.kind in ("argmax", "argmin"))
            or (isinstance(e, Call) and e.function == "sign")
            for e in every
        )

        def watched(machine: Machine, e: Expr) -> Callable[..., Any]:
            code = compiled(machine, e)
            if isinstance(e, Rel):
                sides = [compiled(machine, side) for side in (e.left, e.right)]

                def asked(scope: Any) -> Any:
                    compared.append(any(bool(np.isnan(side(scope))) for side in sides))
                    return code(scope)

                return asked
            if not isinstance(e, Add | Mul | Pow | Call | Reduce):
                return code
            base = compiled(machine, e.base) if isinstance(e, Pow) else None
            is_mean = isinstance(e, Reduce) and e.kind == "mean" and e.condition is not None

            def computed(scope: Any) -> Any:
                value = code(scope)
                met.append(not np.isfinite(value))
                averaged.append(is_mean and np.isnan(value))
                root = base is not None and base(scope) == -np.inf
                disputed.append(np.isnan(value) and (root or chooses))
                return value

            return computed

        tensors, parameters = self.program.tensors, self.program.parameters
        with patch.object(Machine, "compile", watched), np.errstate(all="ignore"):
            oracle.run(self.op, tensors, parameters)
        # Loops over an empty axis meet nothing, and a mean over it is 0/0.
        return any(met) or self.is_empty(), any(disputed), any(compared), any(averaged)

    def has_an_extremum_of_nothing(self) -> bool:
        """Whether a condition or an infinite branch may leave an extremum nothing."""
        for e in (e for q in self.op.equations for e in walk(q.body)):
            if isinstance(e, Reduce) and KINDS[e.kind].sign and KINDS[e.kind].is_smooth:
                infinite = any(isinstance(x, Const) and x.name == "inf" for x in walk(e.body))
                if infinite or e.condition is not None:
                    return True
        return False

    def is_infinite_of_nothing(self) -> bool:
        """Whether an equation has an infinity that a condition makes: as the logarithm of a
        softmax where it excludes, or an extremum of what it leaves, if it leaves nothing.

        What reads that elsewhere than under such a condition has no value to rely on.
        """
        for e in (e for q in self.op.equations for e in walk(q.body)):
            if isinstance(e, Const) and e.name == "inf":
                return True
            if isinstance(e, Reduce) and e.condition is not None:
                if KINDS[e.kind].is_infinite_of_nothing:
                    return True
        return False

    def is_empty(self) -> bool:
        """Whether an axis has no values."""
        sizes = oracle.sizes(self.op, self.program.tensors, self.program.parameters).values()
        return any(0 in n if isinstance(n, tuple) else n == 0 for n in sizes)

    def moved(self, n: int) -> Tensors:
        """Inputs by a rounding error away."""
        smooth = {name: t for name in self.smooth if (t := self.inputs[name]) is not None}
        result = {**self.inputs, **self.nearly(smooth, n)}
        if self.program.twins:
            result[self.program.twins[1]] = result[self.program.twins[0]]
        return result

    def nearly(self, tensors: Mapping[str, torch.Tensor], n: int) -> dict[str, torch.Tensor]:
        """The tensors by a rounding error away."""
        generator = np.random.default_rng((self.program.seed, 3, n))
        ways = {k: torch.from_numpy(np.asarray(generator.uniform(-1, 1, tuple(t.shape))))
                for k, t in tensors.items()}  # fmt: skip
        return {k: t * (1 + ROUNDING * ways[k]) for k, t in tensors.items()}

    def differences(
        self, weights: Mapping[str, torch.Tensor], found: Sequence[torch.Tensor]
    ) -> None:
        """Differences of the loops along one random direction for each input."""
        if self.program.detached or self.program.twins:
            return
        for name, gradient in zip(self.smooth, found, strict=True):
            shape = tuple(gradient.shape)
            way = self.random.uniform(0.3, 1.0, shape) * self.random.choice((-1, 1), shape)

            def total(step: float, name: str = name, way: np.ndarray = way) -> float:
                own = self.program.tensors[name]
                moved = {**self.program.tensors, name: own + step * way}
                with np.errstate(all="ignore"):
                    made = oracle.outputs(self.op, moved, self.program.parameters)
                return sum(float(np.sum(made[n] * w.numpy())) for n, w in weights.items())

            coarse, fine, finest = (
                (total(step) - total(-step)) / (2 * step) for step in (1e-3, 5e-4, 2.5e-4)
            )
            numeric, along = (4 * finest - fine) / 3, float((gradient.numpy() * way).sum())
            size = float(gradient.abs().sum())
            near = 1e-5 * max(1.0, size) + 1e-1 * abs(finest - fine) + 1e-2 * abs(fine - coarse)
            if abs(finest - fine) > 0.5 * abs(fine - coarse) + 1e-6 * max(1.0, size):
                raise Skipped("differences that do not converge")
            if abs(numeric) < BIG and not abs(numeric - along) < near:
                raise Fault("differences", f"of {name}: {along} along a direction, not {numeric}")

    def second(self, weights: Mapping[str, torch.Tensor]) -> None:
        """The gradient of a combination of gradients, in the inputs and in the cotangents."""
        ways = [self.like(self.inputs[n]) for n in self.smooth]

        def twice(first: Callable[..., list[torch.Tensor]], inputs: Tensors) -> list[torch.Tensor]:
            leaves = self.required(inputs)
            given = {n: w.clone().requires_grad_() for n, w in weights.items()}
            pairs = zip(first(leaves, given), ways, strict=True)
            wanted = {**{n: leaves[n] for n in self.smooth}, **given}
            made = _gradients(sum((g * w).sum() for g, w in pairs), [*wanted.values()])
            # Where a value is not finite its cotangent means nothing.
            return [
                torch.where(given[n] == 0, 0, g) if n in given else g
                for n, g in zip(wanted, made, strict=True)
            ]

        def wanted(inputs: Tensors) -> list[torch.Tensor]:
            return twice(lambda leaves, given: self.referred(given, leaves, True), inputs)

        def pulled(leaves: Tensors, given: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
            return self.pulled(self.called(leaves), given, leaves, graph=True)

        expected = wanted(self.inputs)
        if not all(bool((g.abs() < BIG).all()) for g in expected):
            raise Skipped("the second gradient is large or not finite")
        names = [*self.smooth, *(f"the cotangent of {n}" for n in weights)]
        self.compare("second", names, twice(pulled, self.inputs), expected, wanted)

    def forward(self, weights: Mapping[str, torch.Tensor], wanted: Sequence[torch.Tensor]) -> None:
        """<cotangent, J way> = <gradient, way>."""
        ways = {n: self.like(self.inputs[n]) for n in self.smooth}
        terms = [g * ways[n] for n, g in zip(self.smooth, wanted, strict=True)]
        expected = sum(float(term.sum()) for term in terms)
        size = sum(float(term.abs().sum()) for term in terms)

        def off(along: float) -> bool:
            return not abs(along - expected) < 1e-7 * max(1.0, size)

        try:
            along = self.along(ways, weights)
        except IndexError as error:
            if "Expected reduction dim" not in str(error):
                raise
            raise Skipped("torch has no tangent of a cumulative logsumexp of nothing") from error
        if not off(along) or self.program.exact:
            return
        with patch.object(torch, "logsumexp", _logsumexp):
            excused = np.isnan(along) and not off(self.along(ways, weights))
        if excused:
            raise Skipped("torch's own tangent of a logsumexp of nothing is nan")
        if np.isnan(along) and self.undefined()[0]:
            raise Undefined("forward")
        raise Fault("forward", f"{along} along a direction, not {expected}")

    def along(self, ways: Mapping[str, torch.Tensor], weights: Mapping[str, torch.Tensor]) -> float:
        """The weighted outputs' derivative in forward mode."""
        with forward_ad.dual_level():
            duals = dict(self.inputs)
            for name, way in ways.items():
                duals[name] = forward_ad.make_dual(self.inputs[name], way)
            if self.program.twins:
                duals[self.program.twins[1]] = duals[self.program.twins[0]]
            made = dict(zip(self.names(), self.called(duals), strict=True))
            tangents = {n: forward_ad.unpack_dual(made[n]).tangent for n in weights}
        return sum(float((t * weights[n]).sum()) for n, t in tangents.items() if t is not None)

    def batched(self) -> None:
        """torch.func.vmap over one input, against a loop over its samples."""
        if not self.smooth or self.program.twins:
            return
        name = self.smooth[int(self.random.integers(len(self.smooth)))]
        own = self.inputs[name]
        assert own is not None
        samples = torch.stack([own, own * 0.875, own * 1.125])

        def of(t: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return self.called({**self.inputs, name: t})

        whole = torch.func.vmap(of)(samples)
        for place, one in enumerate(zip(*map(of, samples), strict=True)):
            if not torch.allclose(whole[place], torch.stack(one), 1e-9, 1e-9, equal_nan=True):
                raise Fault("vmap", f"output {self.names()[place]} over samples of {name}")


def _gradients(
    total: torch.Tensor | int, wanted: Sequence[Any], graph: bool = False
) -> list[torch.Tensor]:
    """Zeros where the total does not depend on a tensor."""
    if not isinstance(total, torch.Tensor) or not total.requires_grad:
        return [torch.zeros_like(t) for t in wanted]
    found = torch.autograd.grad(total, wanted, allow_unused=True, create_graph=graph)
    return [torch.zeros_like(t) if g is None else g for t, g in zip(wanted, found, strict=True)]


_torch_logsumexp = torch.logsumexp


def _logsumexp(x: torch.Tensor, dim: Any, keepdim: bool = False) -> torch.Tensor:
    """torch.logsumexp with a tangent of 0 where there is nothing but -inf."""
    nothing = _torch_logsumexp(x.detach(), dim, True) == -torch.inf
    made = _torch_logsumexp(torch.where(nothing, 0, x), dim, True)
    kept = torch.where(nothing, -torch.inf, made)
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    return kept if keepdim else kept.squeeze(dims)


def _close(found: torch.Tensor, wanted: torch.Tensor, near: float) -> bool:
    if found.shape != wanted.shape:
        return False
    return torch.allclose(found.double(), wanted.double(), rtol=1e-7, atol=near, equal_nan=True)


def _few(t: torch.Tensor) -> str:
    return str([float(f"{v:.8g}") for v in t.flatten()[:4].tolist()])
