"""Forward mode: operations unlike the catalog's, and code with tangents of its own everywhere."""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
import pytest
import torch
from kit.each import told
from kit.shared import anew

import derive
from derive import pipeline
from derive.check.samples import cases, sample
from derive.notation.operation import Operation

GIVEN = {"w": None, "keepdim": True, "reduction": "none"}
"""Of the optional tensors one is left out; of flags and choices these are asked for."""


@dataclass(frozen=True)
class Invented:
    """An operation and inputs for it: of the positions some are there twice."""

    text: str

    @property
    def op(self) -> Operation:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return derive.parse(self.text)

    @property
    def tensors(self) -> dict[str, Any]:
        op = self.op
        found = sample(op, next(cases(op))).tensors
        left_out = {t.name: None for t in op.inputs if t.default is not None and t.name in GIVEN}
        twice = {name: x // 2 for name, x in found.items() if x.dtype == np.int64}
        return {**found, **twice, **left_out}

    @property
    def parameters(self) -> dict[str, Any]:
        made = sample(self.op, next(cases(self.op))).parameters
        return {name: GIVEN.get(name, value) for name, value in made.items()}


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


INVENTED = {
    name: Invented(text)
    for name, text in told(
        """\
integer indexing
    op f(C[v,d], X[n,t]: int, w[t]) -> y; y[n,d] = sum[t](w[t]*tanh(C[X[n,t],d]))
a chain of lookups
    op f(x[k], off[n]: int, s[n]; size(j)=3) -> y; p[n,j] = off[n] + j; \
      y[n] = sum[j](s[n]*x[p[n,j]]**2)
a scatter sum
    op f(x[e,d], w[e], to[e]: int, z[n,d]) -> y; y[n,d] = z[n,d]*sum[e | to[e]==n](w[e]*exp(x[e,d]))
a mask
    op f(q[i,d], k[j,d], v[j,c], m[i,j]: bool) -> y; \
      P[i,j] = softmax[j | m[i,j] or i == j](sum[d](q[i,d]*k[j,d])); y[i,c] = sum[j](P[i,j]*v[j,c])
branches
    op f(x[n,c], a[c]; t=0.3) -> y; \
      y[n,c] = where(x[n,c] > t, log(x[n,c] - t)*a[c], where(x[n,c] < -t, sqrt(-x[n,c] - t), \
      a[c]**2))
windows
    op f(x[n,t], w[k]; s=2) -> y; y[n,u] = sum[k](w[k]*tanh(x[n,s*u+k]))*w[0]
joined
    op f(a[n,k], b[n,l], g[m]) -> y; c[n,m] = concat[m](a[n,m]**2, b[n,m]*a[n,0]); \
      y[n] = sum[m](g[m]*c[n,m])
a product
    op f(x[n,k], w[k]) -> y; y[n] = prod[k](1 + w[k]*x[n,k])*sum[k](w[k])
products under a condition
    op f(x[n,k], m[k]: bool) -> y; y[n] = prod[k | m[k]](sin(x[n,k]))
a maximum of a sum
    op f(x[i,k], y[j,k]) -> z; z[i] = max[j](sum[k](x[i,k]*y[j,k]))
what an argmax reads
    op f(x[n,c], w[c,d]) -> y; best[n] = argmax[c](x[n,c]); y[n,d] = w[best[n],d]*x[n,best[n]]
shared winners
    op f(x[n,c], s[n]) -> y; y[n] = amax[c](s[n]*x[n,c]) - amin[c](x[n,c])
composite axes
    op f(E[n,(h d)], w[h,d]) -> y; s[n,h] = logsumexp[d](E[n,(h d)]*w[h,d]); \
      y[n,(d h)] = E[n,(h d)]*s[n,h]
optional tensors
    op f(x[n,d], w[d]=1, b[d]=0; eps=0.1) -> y; \
      y[n,d] = w[d]*x[n,d]/sqrt(mean[d](x[n,d]**2) + eps) + b[d]
groups and an axis at run time
    op f(A[*p,k,*q], w[k]; dim=axis(k)) -> y; \
      S[*p,k,*q] = exp(A[*p,k,*q]) / sum[k](exp(A[*p,k,*q])); y[*p,*q] = sum[k](w[k]*S[*p,k,*q])
a kept axis
    op f(A[*p,k,*q]; dim=axis(k), keepdim=keep(k)) -> y; y[*p,*q] = logsumexp[k](A[*p,k,*q]**2)
a size at run time
    op f(x[n,(g c)], w[g]; groups=size(g)) -> y; y[n,g] = w[g]*mean[c](x[n,(g c)]**2)
a choice
    op f(x[n,c], t[n]: int; reduction=mean|sum|none) -> mean: m | sum: s | none: l; \
      l[n] = logsumexp[c](x[n,c]) - x[n,t[n]]; m = mean[n](l[n]); s = sum[n](l[n])
a running logsumexp
    op f(x[n,t], g[t]) -> y; y[n,t] = g[t]*logsumexp[s | s <= t](x[n,s])
a running product
    op f(x[n,t], g[n]) -> y; y[n,t] = g[n]*prod[s | s <= t](x[n,s])
several outputs
    op f(x[n,d], w[d]) -> y, m, k; m[d] = mean[n](x[n,d]); y[n,d] = w[d]*(x[n,d] - m[d])**3; \
      k[d] = argmax[n](x[n,d])
what does not move
    op f(x[n], m[n]: bool) -> y, z; y[n] = [m[n]]*detach(x[n])*x[n]; z[n] = floor(x[n])
positions from floats
    op f(a[k], x[n]) -> y; y[n] = a[int(floor(2*x[n]**2))]*x[n]
a power
    op f(x[n,k], w[n]; p=1.25) -> y; y[n] = w[n]*sum[k](relu(x[n,k])**p)**(1/p)
"""
    )
}
"""By what each is about."""
