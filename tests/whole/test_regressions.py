"""Operations that once came out wrong, each by another fault: values, gradients, second order."""

import re

import pytest
import torch
from kit.each import listed
from kit.lines import defined
from kit.lowered import assert_right
from kit.texts import source

from derive.api import load
from derive.check.checks import verify_source
from derive.check.derivatives import gradcheck, gradgradcheck, value
from derive.check.samples import cases, sample
from derive.notation.specification import parse

FAULTS = listed(
    """\
a branch that is left out, and with it an axis
    op f(v[j], b[*q], r[n], w[z]) -> y; \
      y[z,*q] = mean[o](1/where(v[1] < 0.8, sum[d](r[o]*v[d]), b[*q]/w[z]))
capture when a substitution renames a binder
    y[i,j] = z[i,j]/(sum[k](x[i,k])*sum[k](x[k,j]))
    y[i,j] = z[i,j]*exp(sum[k](x[i,k]) + sum[k](x[k,j]))
a value taken for the position that another sum has as a number
    op f(v[j], x[l]) -> y; y[l] = sum[w](concat[w]((w - l + x[l])*v[w], \
      logsumexp[d | d >= w](x[l]*v[d])*v[w]))
a softmax whose condition asks for none of its indices
    op f(v[j], q[p], m[i]: bool) -> y; y[p,i] = softmax[p | m[i]](mean[b,d | b <= i](q[p]*v[d]))
a softmax of nothing where a condition reads its own positions
    op f(m[j,o]: bool, O[k]: int, v[j], w[l]) -> y; \
      y[j,k,l] = softmax[l | m[j,O[k]]](exp(where(j > 0, log(j), v[j]))*w[l])
a softmax under a condition that a delta narrows
    op f(A[p,i,q], v[j]) -> y; y[p,i,q] = sum[j | i == j](v[j])*softmax[q | i > 0](log1p(A[p,i,q]))
a kernel in the cotangent of another one inside a sum
    op f(x[n,c], v[n]) -> y; h[n,c] = log_softmax[c](x[n,c]*v[n]); y[n] = sum[c](tanh(h[n,c]))
what a kernel opens, compared with an extremum of it
    op f(x[i], v[k]) -> y; y = amin[i](softmax[i](tanh(v[1])*(i + 1))) + sum[i](x[i]**2)
a batch norm that is read at the position of a maximum
    op f(x[n,c], s, z[n,c]) -> y; g[n,c] = x[n,c]*s; t[n] = amax[c](g[n,c]); \
      e[n,c] = exp(g[n,c] - t[n]); k[n,c] = e[n,c]*s; m[c] = mean[n](k[n,c]); \
      u[c] = mean[n]((k[n,c] - m[c])**2); h[n,c] = (k[n,c] - m[c])*rsqrt(u[c] + 0.1); \
      r[n,c] = log(1 + (h[n,c]*z[n,c])**2); y[n] = max[c](r[n,c])
the root of the negative of a root, which is put at positions
    op f(W0[(j k),l], W1[(l j)]) -> y; \
      y[l] = where(-W1[(l 0)] > 0.1, rsqrt(-sqrt(W1[(l 0)])), W0[0,l])
a saved value past whose adjoint a gradient leads
    op f(x[b,c], z[b,c]) -> y; h[b,c] = log_softmax[c](x[b,c]); q[b,c] = h[b,c] - z[b,c]; \
      m[b] = mean[c](q[b,c]); u[b] = mean[c]((q[b,c] - m[b])**2); \
      y[b,c] = (q[b,c] - m[b])*rsqrt(u[b] + 0.1)
a saved value whose adjoint a sum has looked into
    op f(x[n,c], t[n,j]: int) -> y; p[n,j] = softmax[j](x[n,t[n,j]]); \
      y[n,c] = sum[j | t[n,j] == c](p[n,j])
written over a value that lacks the axes of its guard
    op f(x[q], w[q,j]) -> y; y[q,j] = tan(sin([j < 1.5]*x[q])) + w[q,j]
a running product that is put at positions
    op f(U[c]: int, v[c], w[k]) -> y; y[k] = w[k]*sum[c | U[c] == k](exp(prod[d | d <= c](v[d])))
an extremum beside a group that the output alone has
    op f(x[i], q[*p], r[n]) -> y, z; z[*p] = q[*p]**2; y[i,*p] = exp(amin[o](x[i]*r[o]))
summed along an axis of size 1 after a reduction that keeps it
    op f(w[i], x[j,k]) -> y; y[i,k] = w[i]*where(k <= i, 2, 4)*sum[f | f >= k](x[0,f])
read off the axis at the number of a delta
    op f(x[j,j], n[j]: int, v[j]) -> y; h[k,m] = concat[m](n[m]*x[m,m], v[m]) + x[k,k]; \
      y = logsigmoid(exp(h[1,7]))
a shift under a condition inside of a join
    op f(v[i], w[i], u[l]) -> y; y[x] = concat[x](where(x < 1, v[x+1], 1)*w[x], u[x])
a term lost beside a scatter
    y[i] = where(i>=1, x[i-1], 0) + x[i]
a narrower index on an axis
    y[u] = x[u+1] - x[u]
    y[u] = x[u+2] - 2*x[u+1] + x[u]
    y[t] = x[size(t)-1-t]*w[t]
a window that its own axis does not hold
    op f(x[n,t]; lags=size(k)) -> r; r[n,k] = sum[u](x[n,u]*x[n,u+k])
    r[n,k] = exp(w[k])*sum[u](x[n,u]*x[n,u+k])
an undeclared integer tensor that is only compared with a position
    op f(x[n,d], S[n]; segments=size(s)) -> y; y[s,d] = sum[n | S[n] == s](x[n,d]**2)
    op f(x[n,t], L[n]) -> y; y[n] = logsumexp[t | t <= L[n]](x[n,t])
scatters in different layouts added
    y[n] = x[n,0]*x[n,1]
    y[n,k] = concat[k](a[n,k]**2, exp(b[n,k]), a[n,k]*c[n])
a composite axis joined with others
    op f(W[(l i)], v[l], w[i], u[i]) -> y; \
      y[l,x] = concat[x](W[(l x)]*w[x], u[x]*v[l], W[(l x)]*w[x])
    op f(W[n], v[l], w[i]) -> y; y[i,x] = concat[x](W[(x i)]*v[x], W[(x i)]*v[x]*w[i])
    op f(v[l], W[n], u[i]) -> y; y[x,l] = concat[x](W[(l x)]*v[l], u[x]*v[l])
composite axes and their sizes
    op f(x[n,(g d)], w[n]; groups=size(g,2)) -> y; y[n,g] = w[n]*sum[d](x[n,(g d)]**2)/groups
    op f(x[n,(g d),*p]; groups=size(g,2), eps=0.1) -> y; m[n,g] = mean[d,*p](x[n,(g d),*p]); \
      v[n,g] = mean[d,*p]((x[n,(g d),*p]-m[n,g])**2); \
      y[n,(g d),*p] = (x[n,(g d),*p]-m[n,g])/sqrt(v[n,g]+eps)
    op f(x[n,(s d)]; size(s)=2) -> y; y[n,d] = x[n,(0 d)]*sigmoid(x[n,(1 d)])
    op f(x[n,(g c),*p], w[c]=1; groups=size(g,2)) -> y; m[n,g] = mean[c,*p](x[n,(g c),*p]); \
      y[n,(g c),*p] = w[c]*(x[n,(g c),*p] - m[n,g])
what is alike in a segment, outside of its logsumexp
    op f(x[n,h], T[n]: int; count=size(s)) -> y; m[s,h] = max[n | T[n] == s](x[n,h]); \
      e[n,h] = exp(x[n,h] - m[T[n],h]); z[s,h] = sum[n | T[n] == s](e[n,h]); \
      y[n,h] = e[n,h]/z[T[n],h]
    op f(x[n], w[s], T[n]: int, b[n]: bool) -> y; \
      z[s] = sum[n | T[n] == s and b[n]](exp(x[n]*w[T[n]] - w[T[n]])); \
      y[n] = where(b[n], exp(x[n]*w[T[n]] - w[T[n]])/z[T[n]], 0)
    op f(x[n], w[s], T[n]: int, U[n]: int) -> y; z[s] = sum[n | T[n] == s](exp(x[n] - w[T[n]])); \
      y[n] = exp(x[n] - w[U[n]])/z[U[n]]
    op f(x[n], T[n]: int, h[k]; size(s)=5) -> y; m[s] = max[n | T[n] == s](x[n]); \
      e[n] = exp(x[n] - m[T[n]]); z[s] = sum[n | T[n] == s](e[n]); \
      y[s] = sum[n | T[n] == s](e[n]/z[T[n]]*h[T[n]])
the root of a difference that is zero
    op f(x[i], q[*p]) -> y; y[*p] = logsumexp[i](sqrt(q[*p] - q[*p])*x[i]) + q[*p]
a saved value that only a gradient outside the first order read
    op f(A[n,i], B[n,j], w[n]=1) -> y, J; W = sum[n](w[n]); p[n,i] = softmax[i](A[n,i]); \
      q[n,j] = softmax[j](B[n,j]); J[i,j] = sum[n](w[n]*p[n,i]*q[n,j])/W; a[i] = sum[j](J[i,j]); \
      b[j] = sum[i](J[i,j]); y = sum[i,j](J[i,j]*log(J[i,j]/(a[i]*b[j])))
an adjoint of a logsumexp beside a composite axis
    op f(v[j], r[n], W[(j i),l]) -> y; e[n] = sum[c]([c != n]*softmax[c](v[c])); \
      y[n,l] = e[1]*e[n]*r[n]*sum[j,i](W[(j i),l]*v[j])
a softmax that is joined, of what is infinite at 0
    op f(v[k], u[i], w[q]) -> y; y[x,q] = concat[x](u[x], softmax[q](log(v[x])*w[q]))
an output that is an input through an equation
    op f(x[k], t[k]: int, w[n]) -> y, z, u; e[k] = t[k]; y[k] = e[k]; d[k] = x[k]; u[k] = d[k]; \
      z[k] = w[t[k]]*x[k]**2
an output that is an input where sizes say so
    op f(x[k]) -> y, u; y = min[k](x[k]**2); u[k] = [size(k) > 1]*x[k]
    op f(x[k], z[k]) -> y, u; y = x[0]*z[0]; e[k] = where(size(k) > 1, x[k], z[k]); u[k] = e[k]
an output that is another
    op f(x[k]) -> y, z; y[k] = x[k]**2; z[k] = y[k]
a mean of what a bracket keeps safe
    y[n] = mean[k](sum[l](where(k >= 1, logsumexp[m | m >= l](v[m]), 1))*x[k,n])
a summed index that a certain condition leaves out
    y[p,l,q] = softmax[q](sin(where(l - 2 >= 0, x[l-2], A[p,l,q])))
a negated sum as a position
    op f(v[k], X[k,j], T[i]: int) -> y; y[i,j] = X[-(T[i] + 1 - size(k)),j]*v[0]
a part of nothing read in another line
    op f(v[l], w[k], T: int, U[k]: int, A[n,k], B[(l k),k]) -> y; \
      e[k,l,x] = concat[x](B[1,x], sum[z](concat[z](A[(z x),T]*w[z], A[z,k], \
      (x + 1)*w[z]))*v[x]); y[k] = e[T,U[k],0] + clamp(1, T, w[T] + 1)
a softmax read before its logarithm is there
    op f(v[k], x[j,l], r[n]) -> y; y[k] = clamp(log_softmax[k](sin(r[1] + x[0,0])*v[k]), 0, 1)
a position along a group
    y[*p,n] = A[*p,T[*p,n]]
a softmax over a group
    y[*p] = softmax[*p](x[*p]*w)
extrema over several indices
    y[k] = max[i,j](x[i,j,k]+w[j])
    y[k] = amax[i,j](x[i,j,k]+w[j])
any and all inside an equation
    y[n] = where(any[t](x[n,t] > 1.2), sum[t](x[n,t]), 0)
a reduction of something without the index
    op f(x[i], z[j]) -> y; y[i] = mean[j](x[i]) + max[j](x[i]) + sum[j](x[i])*z[0]
two axes with run-time places
    op f(x[*p,i,*q,j,*r]; d1=axis(i), d2=axis(j)) -> y; y[*p,*q,*r] = sum[i,j](x[*p,i,*q,j,*r]**2)
one window read on axes of two sizes
    op f(v[l], X[l,l], R[(k l)], W[(k l)]) -> y; e[x,j] = sum[h](X[2*x + h,j]*R[(0 h)]*v[h]); \
      y[n] = sum[g](e[0,1]*W[n] - X[g,g])
a run-time place between groups
    op f(w[*r], A[*p,*r,j,k,*q]; dim=axis(k)) -> y; y[*p,*q] = sum[*r,j,k](w[*r]*A[*p,*r,j,k,*q]**2)
an index put where a softmax runs over it
    y[k] = min[b](softmax[k](sin(X[k,b])*v[k]))
a softmax read at a position out of its range
    op f(v[k], R[(l k)]) -> y; e[n,l,k] = relu(logsumexp[l | n == l](v[1]*l)); \
      y[l] = sum[f](e[7,1,f]*e[(l f),l,1]*R[(l f)])
a number that is compared with a number
    op f(x[n]; s=0.5) -> y; y[n] = [s >= 0]*x[n]**2
a tensor's value taken for a position
    op f(v[l], w[k]) -> e, y; e[l] = l + 1; y[l] = v[l]*sum[k](log1p(w[k]))
integers in floating arithmetic
    op f(v[k], x[i], T[k]: int) -> y; e[k,i] = [not (v[k] > 0.8)]*(k + 1); \
      y[i,k] = mean[f](log1p(0.5 + e[T[f],i]**2))*v[k]*x[i]
sums with deltas merged under one binder
    op f(v[l], X[l,l], U[i]: int) -> y; y[l,i] = amax[b]((X[U[b],l])*v[l] + sum[b](X[U[i],U[b]]))
deltas that are comparisons alone
    y[j] = sum[d,k]((min[e]((where(k == e, v[j], w[2])*(sum[h](x[k]*w[h])))*x[e]))*v[d])
brackets of numbers
    op f(v[l], w[k]) -> y; e[l,k] = abs(v[l]) - where(l >= 1, v[l], v[l]); \
      y[k] = sum[f](e[1,k]*w[f]) + w[k]
    op f(v[k], w[l], T[k]: int) -> y; y[k,l] = prod[g | 2 < 0.8](v[T[k]]*w[g]) + v[k]*w[l]
a bool equation
    op f(x[i], z[i]) -> y; m[i] = x[i] > z[i]; y[i] = where(m[i], x[i], z[i]**2)
the branch not taken, differentiated twice
    y = sum[i | x[i] > 0.6](sqrt(x[i]-0.6)*w[i])
    y[i] = sum[j | j != i](1/(x[i]-x[j]))
    y[i,j] = where(i==j, 0, 1/(x[i]-x[j]))
a nan at a position that a sum takes from elsewhere
    op f(v[k], T[k]: int) -> y; y[k] = sum[e]([T[e] == k]*[e == k]*mean[f | T[f] == 9](v[f]))
a table that is infinite where nothing is looked up
    op f(x[k], b[i], U[k]: int) -> y; \
      y[k] = sum[e | U[e] == k](x[e]*where(e >= 1, logsumexp[i | i < k](b[i]), 1))
a minimum of nothing, summed under the bracket that excludes it
    op f(c[p,l], x[l,k]) -> y; y[p,l,k] = x[1,k]*where(k >= 1, min[f](where(f < k, \
      sum[j](c[p,j]), inf)), l)
a minimum over two indices of nothing, under a bracket on a bool of nothing
    op f(v[i], w[k], z[q]) -> y; e[i] = sum[j | any[a](j > 1 and v[a] < 9)](min[b,k | b < \
      j](w[k]*v[b])*v[j])*v[i]; y[q,j] = where(j >= 1, e[j], 1)*z[q]
a guard that mixed an index of a sum with one of a product
    op f(x[l,l], T[l]: int) -> y; y[l] = sum[g | T[g] == l](prod[l](x[l,l]**1.5))
a mean of nothing in a branch that one number chooses
    op f(v[k], w[k]) -> y; e = w[0] > 9; y[k] = where(e, mean[j | j > k](v[j]), w[k])
a maximum of nothing under a mask with more indices
    op f(z[q], T[i]: int) -> y; y[i] = mean[a,q](softmax[i | i >= a and a > i - 1](where(i >= 1, \
      amax[k | T[k] == i](1), a)*z[q]))
a part of a composite axis by another index of the same name
    op f(v[l], W[(j l),l]; groups=size(j, 2)) -> y; \
      y[x] = concat[x](v[x]*sum[x](W[(0 x),x]*v[x]), v[x])
a maximum of nothing in one piece of a joined axis
    op f(v[i], q[p]) -> y; y[x] = concat[x](v[x], max[p](min[b | b <= x](1)*q[p])*v[x])
    op f(v[i,d], q[p], w[j]) -> y; y[x] = concat[x](w[x], prod[p | p != x](q[p])*w[x], \
      max[d](v[x,d])*w[0])
an infinity that is multiplied by a number
    op f(v[j], r[n]) -> y; y[j] = max[x]((where(j >= 1, logsumexp[o | x == 1](r[o]), \
      1) + v[x])*(x + 1))
a softmax of nothing under a false bracket
    op f(v[j], m[j]: bool) -> y; y = where(m[1], v[1]**2, logsumexp[d](where(v[d] > 100, v[d]**2, \
      -inf)))*[m[1] and m[0]]*v[0]
a question that asks for what it decides
    op f(v[i], w[k], X[i,i]) -> y; y = max[a](concat[a](X[3,1]*v[1]*w[a], v[a]*X[a,a]))
a reciprocal of what a guard reads as 0, summed
    op f(w[n,i]) -> y; y[n] = sum[i,m](atan2(sum[k | i + 1 < size(i)](w[k,i+1]), 1/w[m,i]))*w[n,0]
numbers that no int64 holds
    y[i] = x[i]*10**(-20)*10**20
a softmax of what lacks its index wherever sizes allow
    op f(x[i,j], y[i,j], b[i], m[i,j]: bool) -> z; \
      z[i,j] = logsumexp[l | not (all[u](m[i,u]))](where(j >= 0, y[i,j]/(b[i]**2 + 1), x[i,l]))
a winner under a bracket with more indices
    op f(x[t,u], m[t]: bool) -> y; y = max[t,u | m[t]]([x[t,u] > 0]*x[t,u]*sin(x[t,u]))
    op f(x[t,u], w[j]) -> y; y[j] = max[t,u | w[j] > -9]([x[t,u] > 0]*x[t,u])
truth values placed, and others added to them
    op f(q[j], w[j]) -> y; y = sum[j](sum[u | u != j](q[u] + w[j]) - max[l](where(l == j, \
      [q[l] < 0.5]*q[l], w[j] + q[l])))
two deltas on one axis, one at a position that reads it
    op f(v[j], w[j]) -> y; y[j] = min[u,l](where(u == l, v[j] + w[u] + w[l], 0))
    op f(x[i,j]) -> y; y = max[i,k,j](where(k == i, x[i,j]*x[k,j], -1))
powers under a minus
    y[i] = -x[i]**3
the size of a group as a number under a guard
    op f(w[k], m[k]: bool, x[*q]) -> y; y = where(m[1], 1, amin[*q](w[2])) + sum[*q](x[*q]**2)
a name that is 0 at the place that is read
    op f(w[h], x[k]) -> y; e[k] = [k == 1]*w[1]*w[2]*x[0]; \
      y[u] = sum[h](e[u + (size(h)-1-h)]*e[2]*w[h])
a running product of one factor
    y = sum[c](x[c]*prod[j | j <= c](x[1]))
a slice that reads a computed axis
    op f(A[*p,k,*q], w[k]; dim=axis(k)) -> y; y[*p,k,*q] = A[*p,k,*q]*w[k]**2
an infinity that is added at places as an integer
    op f(x[k], T[j]: int, m[i,k]: bool) -> y; \
      u[k,i] = sum[c | T[c] == k](log_softmax[i | m[i,k]](1)); y[i,k] = exp(u[k,i])*x[k]
"""
)


@pytest.mark.parametrize("text", [text for _, texts in FAULTS for text in texts], ids=str)
def test_what_was_wrong_once_is_right(text):
    op = parse(text)
    function = load(op)
    case = next(c for c in cases(op) if c.label == "typical")
    made = sample(op, case)
    for check in (value, gradcheck, gradgradcheck):
        assert not check(op, function, made), check.__name__


def test_products_of_the_same_along_two_axes_are_two():
    """The product of the others along j is none along k: their gradients shared one."""
    op = parse(
        "op f(x[i,j,k]) -> y, z\ny[i,k] = prod[j](1 + sin(x[i,j,k]))\n"
        "z[i,j] = prod[k](1 + sin(x[i,j,k]))"
    )
    x = torch.linspace(0.1, 2.4, 24, dtype=torch.float64).reshape(2, 3, 4).requires_grad_()
    made = ([t.square().sum() for t in f(x)] for f in (load(op), defined(op)))
    torch.testing.assert_close(*(torch.autograd.grad(total, x) for total in made))


def test_a_condition_on_an_index_is_decided_where_a_delta_puts_it():
    op = parse("op f(w[j], q[j]) -> y\ny[j] = sum[u | u != j](where(u == j, q[u], w[u]))")
    forward = source(op).partition("def forward(w, q):\n")[2].partition("@")[0]
    read = [line for line in forward.splitlines() if "autocast_float32(w, q)" not in line]
    assert len(read) > 1 and "q" not in re.findall(r"\w+", "\n".join(read))


@pytest.mark.parametrize(
    "line",
    [
        "e = sum[i]([i < 1]*(i + 1))*a[0,0]",
        "e = sum[i]([i < 1]*softmax[i](R[i]))*a[0,0]",
        "e = sum[i]([i < 1]*log_softmax[i](R[i]))*a[0,0]",
    ],
)
def test_a_sum_over_a_part_that_has_the_size_of_an_axis_is_no_whole_sum(line):
    """The range that is left is that of an index of the operation, here of size 1."""
    assert_right(f"op f(R[i]) -> e\na[i,0] = R[i]\n{line}")


def test_what_is_never_0_is_0_in_a_window_that_reads_beyond_its_axis():
    """The second gradient was nan: 0/0 was computed where no position is."""
    op = parse(
        "op f(v[j], w[l], x[l]) -> y\n"
        "y[l] = atan2(w[l]*sum[j](v[j]), 1/2 + where(l - 2 >= 0, x[l-2], 1)**2)"
    )
    v, w, x = (torch.linspace(0.2, 1.3, n, dtype=torch.float64).requires_grad_() for n in (4, 5, 5))

    found, wanted = (
        torch.autograd.grad(
            [g.sum() for g in torch.autograd.grad(f(v, w, x).sum(), (v, w, x), create_graph=True)],
            (v, w, x),
        )
        for f in (load(op), defined(op))
    )
    torch.testing.assert_close(found, wanted)


def test_masks_of_several_brackets_are_all_applied_where_operands_are_put_together():
    """The mask m was lost: no factor had its indices, and the product of all that has was later."""
    op = parse("op f(w[j], m[i,j]: bool) -> y\ny[i] = mean[k](amin[j,l]([m[k,l] and i <= k]*w[j]))")
    w = torch.tensor([0.3, 0.7, 0.4, 0.9], dtype=torch.float64, requires_grad=True)
    m = torch.tensor([[1, 0, 1, 1], [1, 1, 1, 1], [0, 1, 1, 0]]).bool()
    cotangent = torch.tensor([0.5, -1.5, 2.0], dtype=torch.float64)
    made = (f(w, m) for f in (load(op), defined(op)))
    torch.testing.assert_close(*(torch.autograd.grad(y, w, cotangent) for y in made))


def test_what_is_compared_for_equality_rounds_alike():
    """One side was made by addcmul, which rounds once: the gradient of some winners was 0."""
    op = parse(
        "op f(x[i,j], a[i], w[j]) -> y\n"
        "y[j] = amax[k](prod[t | t == k](sigmoid(x[size(t)-1,j]) + 1)*amin[l](1 + w[l]) + a[k])"
        "*logsumexp[t](x[size(t)-1-t,j] + a[t])"
    )
    generator = torch.Generator().manual_seed(0)
    for rows, columns in ((1, 40), (3, 50), (2, 60)):
        x, a, w = (
            torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
            for shape in ((rows, columns), (rows,), (columns,))
        )
        made = (f(x, a, w).square().sum() for f in (load(op), defined(op)))
        torch.testing.assert_close(*(torch.autograd.grad(total, (x, a, w)) for total in made))


def test_a_difference_of_equal_products_is_0():
    """One call that multiplies and adds rounds one of them, and leaves the rounding error."""
    text = (
        "op f(a[n,i], b[n,i], c[n,i], d[n,i], q[n,i]) -> y\n"
        "u[n,i] = a[n,i]*b[n,i] - c[n,i]*d[n,i]\nz[n,i] = u[n,i]*q[n,i]\n"
        "y[n,i] = atan2(u[n,i], z[n,i]) + exp(z[n,i])"
    )
    torch.manual_seed(0)
    a, b, q = torch.rand(3, 8, 5, dtype=torch.float64).requires_grad_()
    y = load(parse(text))(a, b, a, b, q)
    assert torch.equal(y, torch.ones_like(y))
    for graph in (False, True):
        for g in torch.autograd.grad(y.sum(), (a, b, q), retain_graph=True, create_graph=graph):
            assert not g.count_nonzero()


def test_a_matrix_of_ones_that_an_optional_tensor_stands_for_sums_a_vector():
    """A vector has no axis -2: the backward raised where the tensor was not given."""
    op = parse("op f(v[i], x[i,i]=1) -> y\ny[n] = sum[i](x[2*n,i]*log_softmax[i](v[i]**2))")
    for size in (1, 2, 5):
        v = torch.linspace(0.2, 1.1, size, dtype=torch.float64).requires_grad_()
        found, wanted = (
            torch.autograd.grad(y.square().sum(), v)
            for y in (load(op)(v), load(op)(v, torch.ones(size, size, dtype=torch.float64)))
        )
        torch.testing.assert_close(found, wanted)


def test_a_size_keeps_the_guard_that_gives_it_axes():
    """where(m[k], size(j), 0) has an axis; without its guard it was a number, typed as a tensor."""
    op = parse(
        "op f(x[k], v[j], U[k]: int) -> y\n"
        "e[k] = [all[i](k < 1 and x[i] < 9)]*(sum[i](x[i]))\n"
        "y[k] = mean[j | U[k] == k](log_softmax[k | e[U[k]] < 0.8](sin(v[j])*x[k]))"
    )
    verify_source(op, source(op))


def test_a_size_whose_formula_is_a_number_is_no_letter_for_this_number():
    """A difference was written over an operand with axes of 1 element: 1 was taken for size(k)."""
    op = parse(
        "op f(x[p,j,j,j]) -> y\nh[a,j,p,b] = x[p,a,j,b]\n"
        "y[p,k,m,b] = mean[d](x[p,d,1,1] - h[2*k + d,m,p,b])"
    )
    x = torch.randn(3, 4, 4, 4, dtype=torch.float64)
    torch.testing.assert_close(load(op)(x), defined(op)(x))


def test_a_band_of_no_element_may_lie_on_an_empty_axis():
    """A window of 0 elements began at 1: the axis was cut below 0."""
    f = load(parse("op f(x[i,j]) -> y\ny[i] = x[i,0] + sum[b,c | b > i and i >= b](x[b,c])"))
    assert f(torch.zeros(0, 3)).shape == (0,)
    assert f(torch.ones(2, 3)).tolist() == [1, 1]


def test_a_position_that_is_no_position_is_not_read_through_another():
    """U[U[c]] was read at U[0] where U[c] is none of the axis, and there it may be -1."""
    op = parse("op f(x[j,j], U[j]: int) -> y\ny[j] = sum[c | U[c] == j](x[U[j],U[c]])")
    x = torch.arange(9, dtype=torch.float64).reshape(3, 3).requires_grad_()
    assert load(op)(x, torch.tensor([-1, 1, -7])).tolist() == [0, 4, 0]


def test_a_part_of_a_join_may_be_empty_where_no_sum_reads_it():
    """A tensor computes the condition of the position, not the position."""
    text = (
        "op f(v[j], u[k], w[l]) -> y\n"
        "e[x] = concat[x](u[x], v[x])\ny[l] = sum[h | h < l](e[2]*w[l])"
    )
    f = load(parse(text))
    v, u, w = (torch.rand(n, dtype=torch.float64).requires_grad_() for n in (0, 3, 4))
    found = torch.autograd.grad(f(v, u, w).sum(), (v, u, w))
    wanted = torch.autograd.grad((u[2] * w * torch.arange(4)).sum(), (u, w))
    assert found[0].shape == (0,)
    torch.testing.assert_close(found[1:], wanted)
