"""The tables of lowering patterns: named, asked in their order, and one row is all a pattern is."""

import pytest
from kit.calls import unknown_calls
from kit.rows import without

from derive import derivation, load, parse, source
from derive.check.checks import VALUES, checks_of
from derive.lowering.patterns import PATTERNS

ROWS = [row for table in PATTERNS.values() for row in table]


def test_a_row_has_a_name_of_its_own_and_states_an_identity():
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert all(" = " in row.states for row in ROWS)


EXAMPLES = {
    "number": "op f(x[t]) -> y\ny = x[0]**2",
    "numbered places": "op f(x[t]) -> y\ny = x[0]**2",
    "window": "op f(x[u]) -> y\ny[s] = x[s+2]",
    "piece": "op f(x[u]) -> y\ny[s] = x[s+2]",
    "diagonal": "op f(x[i,i]) -> y\ny[i] = x[i,i]",
    "on a diagonal": "op f(x[i,i]) -> y\ny[i] = x[i,i]",
    "every n-th": "op f(x[u]) -> y\ny[t] = x[2*t]**2",
    "run": "op f(x[u]) -> y\ny[t] = x[2*t]**2",
    "numbered cases": "op f(x[i,j]) -> y\ny[j] = x[1,j]*x[2,j]",
    "computed position": "op f(x[n,k]; at=1) -> y\ny[n] = x[n,at]",
    "places on several axes": "op f(x[n,k]; at=1) -> y\ny[n] = x[n,at]",
    "digits": "op f(x[t], z[u]) -> y\ny[u] = x[u+1]*z[u]",
    "guarded window": "op f(x[t], z[u]) -> y\ny[u] = x[u+1]*z[u]",
    "product of others": "op f(x[i,j]) -> y\ny[i] = prod[j](x[i,j])",
    "places": "op f(W[v,d], T[n]) -> y\ny[n,d] = W[T[n],d]",
    "windows": "op f(x[t]; size(k)=3) -> y\ny[u,k] = 2*x[u+k]",
    "cumulative sum": "op f(A[k]) -> F\nF[k] = sum[l | l <= k](A[l])",
    "zeros outside": "op f(x[t]) -> y\ny[t] = x[t] - [t >= 1]*x[t-1]",
    "convolution": "op f(x[i], w[k]) -> y\ny[t] = sum[k](x[t+k]*w[k])",
    "transposed convolution": "op f(x[i], w[k]) -> y\ny[t] = sum[k](x[t+k]*w[k])",
    "cumulative reduction": "op f(A[n,k]) -> y\ny[n,k] = prod[l | l<=k](A[n,l])",
    "remainder": "op f(x[t], w[u]) -> y\ny[t] = sum[u](w[u]*x[(t-u) % size(t)])",
    "convolution on a ring": "op f(x[t], w[t]) -> y\ny[t] = sum[u](w[u]*x[(t-u) % size(t)])",
    "recurrence of segments": "op f(x[t], a[t]) -> y\n"
    "y[t] = sum[k | t<=k](x[k]*prod[l | t<=l and l<k](a[l]))",
    "recurrences of both ends": "op f(x[t], a[t]) -> y\n"
    "y[t] = sum[k | t<=k](x[k]*exp(sum[l | t<=l and l<k](a[l])))",
    "recurrence of exponentials": "op f(x[k]) -> y\ny[k] = logsumexp[l | l <= k](x[l])",
    "recurrence of ties": "op f(A[n,k]) -> y\ny[n,k] = amax[l | l<=k](A[n,l])",
    "any of ties": "op f(A[k]) -> y\nm[k] = amax[l | l<=k](A[l])\n"
    "y[k] = where(any[l](l<=k and A[l] == m[k]), A[k], 0)",
    "places along several axes": "op f(x[n,h,w]) -> y\ny[n,p,q] = exp(x[n,2*p+1,3*q])",
    "pieces": "op f(x[n], y[m]) -> z\nz[k] = concat[k](x[k], y[k])",
    "branches": "op f(a, b, m: bool) -> y\ny = where(m, a*tanh(b), a)",
    "band": "op f(A[k]) -> y\ny[k] = sum[l | k-2<=l and l<=k](A[l])",
    "bounds": "op f(x[i]; d=0.7) -> y\ny[i] = where(x[i] <= d, 2, x[i])",
    "pooling": "op f(x[n,s]; size(u)=3) -> y\ny[n,t] = mean[u](x[n,t+u])",
    "known index": "op f(x[t], z[u]) -> y\ny = sum[t,u]([t == u+1]*x[t]*z[u])",
    "number outside": "op f(a[i], b[j]) -> y\ny[m] = concat[m](a[m], 0*b[m] + 3)",
    "rank": (
        "op f(x[n,k]; size(r)=size(k)) -> y\n"
        "rank[n,k] = sum[l]([x[n,l] > x[n,k] or x[n,l] == x[n,k] and l < k])\n"
        "y[n,r] = sum[k | rank[n,k] == r](x[n,k]**2)"
    ),
    "one side of a bound": "op f(x[l], b[k], v[l]) -> y\ny[k] = sum[l | x[l] < b[k]](v[l]**2)",
    "logsumexp of one side of a bound": (
        "op f(x[l], b[k], v[l]) -> y\ny[k] = logsumexp[l | x[l] < b[k]](v[l])"
    ),
    "means of one side of a bound": (
        "op f(x[l], b[k], v[l], w[l]) -> y\n"
        "y[k] = sum[l | x[l] < b[k]](softmax[l | x[l] < b[k]](v[l])*w[l])"
    ),
    "any of one side of a bound": (
        "op f(x[l], b[k], v[k]) -> y\ny[k] = where(any[l](x[l] >= b[k]), v[k]**2, 0)"
    ),
    "ring read": "op f(x[n,t]; s=1) -> y\ny[n,t] = x[n,(t - s) % size(t)]**2",
    "scaled branches": "op f(x[i]; a=0.3) -> y\ny[i] = where(x[i] > 1, x[i], a*x[i])",
    "run by digits": "op f(w[(t d)], a[t], b[d]) -> y\ny[t,d] = w[(d t)]*a[t]*b[d]",
    "condition on numbers": "op f(x[k], m[n]) -> y\ny[n] = where(1 < size(k), x[1]*m[n], 0)",
    "lookup": "op f(B[g,n], s[n]: int) -> y\ny[n] = sum[g | s[n]-1==g](B[g,n])",
    "sum by place": "op f(B[g,d], s[n]: int) -> y\ny[n] = sum[g,d | s[n]==g](B[g,d])",
    "weighted cumulative sum": "op f(q[k,d], x[k,d]) -> y\ny[k] = sum[l,d | l<=k](q[k,d]*x[l,d])",
    "extremum by place": "op f(x[n], v[g], s[n]: int) -> y\ny[g] = amax[n | s[n]==g](x[n]*v[g])",
    "any by place": "op f(x[g], s[n]: int) -> y\ny[g] = where(any[n](s[n] == g), x[g]**2, 0)",
    "convolution within": (
        "op f(x[n,t], w[k]; s=2) -> y\ny[n,u] = sum[k](w[k]*tanh(x[n,s*u+k]))*w[0]"
    ),
    "places on joined axes": (
        "op f(x[t,u], w[j]) -> y\ny[j] = max[t,u | w[j] > -9]([x[t,u] > 0]*x[t,u])"
    ),
    "ring": "op f(x[n,t]) -> y\ny[n,t] = where(t >= 1, x[n,t - 1], x[n,t - 1 + size(t)])",
    "into places": (
        "op f(x[n,v], y[n,k], s[n,k]: int) -> z\n"
        "z[n,v] = x[n,v]**2 - 3*sum[k | s[n,k] == v](y[n,k])"
    ),
    "sum by places": (
        "op f(x[n], s[n]: int, t[n]: int; E=size(e), C=size(c)) -> y\n"
        "y[c,e] = sum[n]([s[n]==e]*[c==t[n]]*x[n]**2)"
    ),
    "lookups": (
        "op f(x[n], s[n]: int, t[n]: int; E=size(e), C=size(c)) -> y\n"
        "y[c,e] = sum[n]([s[n]==e]*[c==t[n]]*x[n]**2)"
    ),
    "part of a range": (
        "op f(x[n,k], b[k], o[n,l]) -> y\n"
        "h[n,m] = concat[m](x[n,m], o[n,m])\n"
        "y[n,k] = b[k]*sum[m | m < size(k)](h[n,m])"
    ),
    "digits of places": (
        "op f(x[n,(m d)], z[n,i]; size(m)=2) -> y\n"
        "h[n,(m d)] = exp(x[n,(m d)])*(m + 1)\n"
        "part[n,k] = h[n,k]\n"
        "y[n,j] = concat[j](part[n,j], z[n,j])"
    ),
}
"""An operation for each row of the tables."""


@pytest.mark.parametrize("name", [row.name for row in ROWS])
def test_a_row_has_an_example_that_it_lowers(name):
    op = parse(EXAMPLES[name])
    found = {pattern for _, pattern, _ in derivation(op).recognised}
    assert name in found, source(op)
    assert unknown_calls([op]) == set(), "a call without a row in derive/program/torch_ops.py"
    assert all(c.ok for c in checks_of(op, load(op), columns=VALUES))


NEEDED = "cumulative sum", "lookup", "any by place", "run", "numbered places"


@pytest.mark.parametrize("name", NEEDED)
def test_the_steps_name_the_pattern_and_without_its_row_the_code_is_another(name):
    op = parse(EXAMPLES[name])
    made = derivation(op)
    assert name in {pattern for _, pattern, _ in made.recognised}
    assert f": {name}: " in made.text(steps=True)
    assert "patterns of the code" not in str(made)
    with without(name):
        general = source(op)
    assert general != source(op)
