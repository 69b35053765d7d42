"""Forward mode: operations unlike the catalog's, and code with tangents of its own everywhere."""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import numpy as np
import pytest
import torch
from kit.shared import anew

import derive
from derive import pipeline
from derive.notation.operation import Operation


@dataclass(frozen=True)
class Invented:
    """An operation and inputs for it."""

    text: str
    tensors: Mapping[str, Any]
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def op(self) -> Operation:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return derive.parse(self.text)


def loaded(op: Operation) -> Any:
    """The generated function, with tangents of its own whether torch's are right or not."""
    with pytest.MonkeyPatch.context() as patch, anew("program_of"):
        patch.setattr(pipeline, "has_forward_mode", lambda codes: False)
        return derive.load(op)


Outputs = Callable[..., tuple[torch.Tensor, ...]]


def of_floats(
    f: Any, tensors: Mapping[str, Any], parameters: Mapping[str, Any]
) -> tuple[Outputs, dict[str, torch.Tensor]]:
    """The float outputs as a function of the float inputs, and these."""
    every = {n: None if v is None else torch.from_numpy(np.array(v)) for n, v in tensors.items()}
    moving = {n: t for n, t in every.items() if t is not None and t.is_floating_point()}

    def call(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = f(*{**every, **dict(zip(moving, given, strict=True))}.values(), **parameters)
        made = made if isinstance(made, tuple) else (made,)
        return tuple(y for y in made if y.is_floating_point())

    return call, moving


def random_like(tensors: Iterable[Any], seed: int) -> list[torch.Tensor]:
    """Numbers in [0.5, 1.5)."""
    rng = np.random.default_rng(seed)
    return [torch.from_numpy(np.asarray(rng.uniform(0.5, 1.5, tuple(t.shape)))) for t in tensors]


@dataclass(frozen=True)
class Slopes:
    """Derivatives of the weighted outputs along a direction of all inputs."""

    reverse: float
    forward: float
    size: float
    """That of the terms of ``reverse``."""
    twice_reverse: float
    forward_over_reverse: float
    forward_over_forward: float

    def assert_alike(self, near: float = 1e-9) -> None:
        """Each pair, where what reverse mode gives is finite."""
        if not isfinite(self.reverse):
            return
        bound = near * (1 + self.size)
        assert self.forward == pytest.approx(self.reverse, rel=near, abs=bound)
        if not isfinite(self.twice_reverse):
            return
        for second in (self.forward_over_reverse, self.forward_over_forward):
            bound = near * (1 + abs(self.twice_reverse) + self.size)
            assert second == pytest.approx(self.twice_reverse, rel=near, abs=bound)


def slopes(call: Outputs, inputs: Sequence[torch.Tensor]) -> Slopes:
    """J v . u and v . J^T u, and the same of what these are differentiated again."""
    ways, weights = random_like(inputs, 5), random_like(call(*inputs), 6)
    places = tuple(range(len(inputs)))

    def total(*xs: torch.Tensor) -> torch.Tensor:
        return sum(
            ((y * w).sum() for y, w in zip(call(*xs), weights, strict=True)), torch.zeros(())
        )

    def backward(*xs: torch.Tensor) -> torch.Tensor:
        found = torch.func.grad(total, places)(*xs)
        return torch.stack([(g * v).sum() for g, v in zip(found, ways, strict=True)]).sum()

    def forward(*xs: torch.Tensor) -> torch.Tensor:
        return torch.func.jvp(total, xs, tuple(ways))[1]

    first = torch.func.grad(total, places)(*inputs)
    second = torch.func.grad(backward, places)(*inputs)
    return Slopes(
        reverse=float(backward(*inputs)),
        forward=float(forward(*inputs)),
        size=float(sum((g * v).abs().sum() for g, v in zip(first, ways, strict=True))),
        twice_reverse=float(sum((g * v).sum() for g, v in zip(second, ways, strict=True))),
        forward_over_reverse=float(torch.func.jvp(backward, tuple(inputs), tuple(ways))[1]),
        forward_over_forward=float(torch.func.jvp(forward, tuple(inputs), tuple(ways))[1]),
    )


def floats(*shape: int, seed: int = 0) -> Any:
    """Numbers around 0, apart from each other and from 0."""
    rng = np.random.default_rng((seed, *shape))
    count = int(np.prod(shape))
    spread = (rng.permutation(count) + rng.uniform(0.2, 0.8, count)) / max(1, count)
    return (3 * spread - 1.5).reshape(shape)


def whole(*shape: int, below: int, seed: int = 0) -> Any:
    return np.random.default_rng((seed, *shape)).integers(0, below, shape)


def bools(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng((seed, *shape)).random(shape) < 0.6


INVENTED = {
    "integer indexing": Invented(
        "op f(C[v,d], X[n,t]: int, w[t]) -> y\ny[n,d] = sum[t](w[t]*tanh(C[X[n,t],d]))",
        {"C": floats(5, 3), "X": whole(2, 4, below=5), "w": floats(4)},
    ),
    "a chain of lookups": Invented(
        "op f(x[k], off[n]: int, s[n]; size(j)=3) -> y\n"
        "p[n,j] = off[n] + j\ny[n] = sum[j](s[n]*x[p[n,j]]**2)",
        {"x": floats(9), "off": whole(4, below=6), "s": floats(4)},
    ),
    "a scatter sum": Invented(
        "op f(x[e,d], w[e], to[e]: int, z[n,d]) -> y\n"
        "y[n,d] = z[n,d]*sum[e | to[e]==n](w[e]*exp(x[e,d]))",
        {"x": floats(6, 2), "w": floats(6), "to": whole(6, below=4), "z": floats(4, 2)},
    ),
    "a mask": Invented(
        "op f(q[i,d], k[j,d], v[j,c], m[i,j]: bool) -> y\n"
        "P[i,j] = softmax[j | m[i,j] or i == j](sum[d](q[i,d]*k[j,d]))\n"
        "y[i,c] = sum[j](P[i,j]*v[j,c])",
        {"q": floats(3, 2), "k": floats(5, 2), "v": floats(5, 4), "m": bools(3, 5)},
    ),
    "branches": Invented(
        "op f(x[n,c], a[c]; t=0.3) -> y\n"
        "y[n,c] = where(x[n,c] > t, log(x[n,c] - t)*a[c],"
        " where(x[n,c] < -t, sqrt(-x[n,c] - t), a[c]**2))",
        {"x": floats(3, 4), "a": floats(4)},
        {"t": 0.3},
    ),
    "windows": Invented(
        "op f(x[n,t], w[k]; s=2) -> y\ny[n,u] = sum[k](w[k]*tanh(x[n,s*u+k]))*w[0]",
        {"x": floats(2, 9), "w": floats(3)},
        {"s": 2},
    ),
    "joined": Invented(
        "op f(a[n,k], b[n,l], g[m]) -> y\n"
        "c[n,m] = concat[m](a[n,m]**2, b[n,m]*a[n,0])\ny[n] = sum[m](g[m]*c[n,m])",
        {"a": floats(2, 3), "b": floats(2, 4), "g": floats(7)},
    ),
    "a product": Invented(
        "op f(x[n,k], w[k]) -> y\ny[n] = prod[k](1 + w[k]*x[n,k])*sum[k](w[k])",
        {"x": floats(3, 4), "w": floats(4)},
    ),
    "products under a condition": Invented(
        "op f(x[n,k], m[k]: bool) -> y\ny[n] = prod[k | m[k]](sin(x[n,k]))",
        {"x": floats(3, 5), "m": bools(5)},
    ),
    "a maximum of a sum": Invented(
        "op f(x[i,k], y[j,k]) -> z\nz[i] = max[j](sum[k](x[i,k]*y[j,k]))",
        {"x": floats(3, 2), "y": floats(5, 2)},
    ),
    "what an argmax reads": Invented(
        "op f(x[n,c], w[c,d]) -> y\n"
        "best[n] = argmax[c](x[n,c])\ny[n,d] = w[best[n],d]*x[n,best[n]]",
        {"x": floats(3, 5), "w": floats(5, 2)},
    ),
    "shared winners": Invented(
        "op f(x[n,c], s[n]) -> y\ny[n] = amax[c](s[n]*x[n,c]) - amin[c](x[n,c])",
        {"x": floats(4, 3), "s": floats(4)},
    ),
    "composite axes": Invented(
        "op f(E[n,(h d)], w[h,d]) -> y\n"
        "s[n,h] = logsumexp[d](E[n,(h d)]*w[h,d])\ny[n,(d h)] = E[n,(h d)]*s[n,h]",
        {"E": floats(3, 8), "w": floats(2, 4)},
    ),
    "optional tensors": Invented(
        "op f(x[n,d], w[d]=1, b[d]=0; eps=0.1) -> y\n"
        "y[n,d] = w[d]*x[n,d]/sqrt(mean[d](x[n,d]**2) + eps) + b[d]",
        {"x": floats(3, 4), "w": None, "b": floats(4)},
        {"eps": 0.1},
    ),
    "groups and an axis at run time": Invented(
        "op f(A[*p,k,*q], w[k]; dim=axis(k)) -> y\n"
        "S[*p,k,*q] = exp(A[*p,k,*q]) / sum[k](exp(A[*p,k,*q]))\n"
        "y[*p,*q] = sum[k](w[k]*S[*p,k,*q])",
        {"A": floats(2, 3, 4, 5), "w": floats(4)},
        {"dim": 2},
    ),
    "a kept axis": Invented(
        "op f(A[*p,k,*q]; dim=axis(k), keepdim=keep(k)) -> y\n"
        "y[*p,*q] = logsumexp[k](A[*p,k,*q]**2)",
        {"A": floats(2, 3, 4)},
        {"dim": 1, "keepdim": True},
    ),
    "a size at run time": Invented(
        "op f(x[n,(g c)], w[g]; groups=size(g)) -> y\ny[n,g] = w[g]*mean[c](x[n,(g c)]**2)",
        {"x": floats(2, 12), "w": floats(3)},
        {"groups": 3},
    ),
    "a choice": Invented(
        "op f(x[n,c], t[n]: int; reduction=mean|sum|none) -> mean: m | sum: s | none: l\n"
        "l[n] = logsumexp[c](x[n,c]) - x[n,t[n]]\nm = mean[n](l[n])\ns = sum[n](l[n])",
        {"x": floats(4, 3), "t": whole(4, below=3)},
        {"reduction": "none"},
    ),
    "a running logsumexp": Invented(
        "op f(x[n,t], g[t]) -> y\ny[n,t] = g[t]*logsumexp[s | s <= t](x[n,s])",
        {"x": floats(2, 5), "g": floats(5)},
    ),
    "a running product": Invented(
        "op f(x[n,t], g[n]) -> y\ny[n,t] = g[n]*prod[s | s <= t](x[n,s])",
        {"x": floats(2, 5), "g": floats(2)},
    ),
    "several outputs": Invented(
        "op f(x[n,d], w[d]) -> y, m, k\n"
        "m[d] = mean[n](x[n,d])\ny[n,d] = w[d]*(x[n,d] - m[d])**3\nk[d] = argmax[n](x[n,d])",
        {"x": floats(4, 3), "w": floats(3)},
    ),
    "what does not move": Invented(
        "op f(x[n], m[n]: bool) -> y, z\ny[n] = [m[n]]*detach(x[n])*x[n]\nz[n] = floor(x[n])",
        {"x": floats(4), "m": bools(4)},
    ),
    "positions from floats": Invented(
        "op f(a[k], x[n]) -> y\ny[n] = a[int(floor(2*x[n]**2))]*x[n]",
        {"a": floats(6), "x": floats(4)},
    ),
    "a power": Invented(
        "op f(x[n,k], w[n]; p=1.25) -> y\ny[n] = w[n]*sum[k](relu(x[n,k])**p)**(1/p)",
        {"x": floats(3, 4), "w": floats(3)},
        {"p": 1.25},
    ),
}
"""By what each is about; all sizes differ."""
