"""The code that one would write: the lines of forward and backward, and that they are right."""

import pytest
from kit.lines import made
from kit.lowered import assert_code, assert_right, code_table

from derive import load
from derive.check.checks import VALUES, checks_of

CODE = code_table(
    """\
# A read is a view.
op f(x[i,j]) -> y; y[j,i] = x[i,j]
    y = x.mT
op f(x[i,j]) -> y; y[j] = x[2,j]
    y = x[2]
op f(x[i,j]) -> y; y[i] = x[i,1]
    y = x[:, 1]
op f(x[i,i]) -> y; y[i] = x[i,i]
    y = x.diagonal(0, 0, 1)
op f(x[i,i,j]) -> y; y[j,i] = x[i,i,j]
    y = x.diagonal(0, 0, 1)
op f(x[u]) -> y; y[s] = x[s+2]
    y = x.narrow(0, 2, x.shape[0] - 2)
op f(x[n,k]; at=1) -> y; y[n] = x[n,at]
    y = x[:, rt.nonnegative(at)]
op f(x[n,(t d)]; size(t)=2) -> y; y[n,t,d] = exp(x[n,(t d)])
    y = x.unflatten(1, (2, x.shape[1] // 2)).exp()
        grad_x = (G * y).flatten(1, 2)
op f(x[n,u]; size(k)=3) -> y; y[n,t] = max[k](x[n,t+k])
    max_of_x = x.unfold(1, 3, 1).max(2)
    y = max_of_x.values
    winner = max_of_x.indices
# At computed positions; one position twice adds up.
op f(E[v,d], T[n]: int) -> y; y[n,d] = E[T[n],d]
    y = E.index_select(0, T)
        grad_E = G.new_zeros(E_shape).index_add(0, T, G)
op f(x[n,c], T[n]: int) -> y; y[n] = x[n,T[n]]
    y = x.gather(1, T.unsqueeze(1)).squeeze(1)
        grad_x = G.new_zeros(x_shape).scatter_add(1, T.unsqueeze(1), G.unsqueeze(1))
op f(x[n,c,d], T[n]: int) -> y; y[n,d] = x[n,T[n],d]
    y = x.gather(1, T.unsqueeze(1).unsqueeze(2).expand((x.shape[0], 1, x.shape[2]))).squeeze(1)
op f(x[n,c], T[n]: int) -> y; y[n] = x[n,T[n]]**2
    y = x.gather(1, T.unsqueeze(1)).squeeze(1).square()
        grad_x = G.new_zeros(x.shape).scatter_add(1, T.unsqueeze(1), \
          (2 * G * x.gather(1, T.unsqueeze(1)).squeeze(1)).unsqueeze(1))
op f(x[c], T[n]: int) -> y; y[n] = x[2*T[n]]
    y = x.index_select(0, 2 * T)
# Signs are written, and no factor of -1; complementary brackets are one choice.
op f(x[i], z[i]) -> y; y[i] = x[i] - z[i] - 3
    y = x - z - 3
        grad_x = G
        grad_z = -G
op f(x[i], z[i], m[i]: bool) -> y; y[i] = [m[i]]*x[i] + [not m[i]]*z[i]
    y = rt.where(m, x, z)
        grad_x = rt.where(m, G, 0)
        grad_z = rt.where(~m, G, 0)
# What is placed on a diagonal is added to the others.
op f(x[i,i,j]) -> y; y[i,j] = x[i,i,j] + x[i,0,j]
    y = x.diagonal(0, 0, 1).mT + x[:, 0]
op f(x[i,i]) -> y; y[i] = x[i,i]**2
    y = x.diagonal(0, 0, 1).square()
# What is small is multiplied first, and what is divided by last.
op f(x[i,j], z[i]) -> y; y[i,j] = 2*x[i,j]*z[i]/3/sqrt(z[i])
    y = (2 * z.sqrt() / 3).unsqueeze(1) * x
# Functions are those of torch, and a softmax is one call.
op f(x[i], z[i]) -> y; y[i] = maximum(sqrt(x[i]), log1p(z[i]))
    y = torch.maximum(x.sqrt(), z.log1p())
op f(x[i]) -> y; y[i] = erf(x[i])*expm1(x[i])
    y = x.erf() * x.expm1()
op f(x[i,j]) -> y; y[i,j] = softmax[j](x[i,j])
    y = torch.softmax(x, 1)
op f(x[i,j]) -> y; y[i] = sum[j](log_softmax[j](x[i,j])*x[i,j])
    y = (x * torch.log_softmax(x, 1)).sum(1)
op f(x[i,j], w[i,j]) -> y; y[i] = sum[j](log_softmax[j](x[i,j])*w[i,j])
    y = (w * torch.log_softmax(x, 1)).sum(1)
# Conditions of tensors and positions are masks, those of parameters branches.
op f(x[i], T[i]: int; s=2) -> y; y[i] = where(T[i] == 3 or x[i] > s and i < s, x[i], 0)
    y = rt.where((T == 3) | (x > s) & (torch.arange(x.shape[0], device=x.device) < s), x, 0)
op f(x[i,j]) -> y; y[i,j] = [j != i]*x[i,j]
    positions_of_x = torch.arange(x.shape[0], device=x.device).unsqueeze(1)
    y = torch.where(positions_of_x != torch.arange(x.shape[1], device=x.device), x, 0)
op f(x[i]; s=2) -> y; y[i] = where(s > 0, x[i]**2, x[i])
    y = x * (x if 0 < s else x.new_full((), 1).expand(x.shape))
# Cases of a short axis are one stack, which is reduced as the first axis.
op f(x[n], z[n]; size(k)=2) -> y; y[n,k] = [k == 0]*x[n] + [k == 1]*z[n]**2
    y = rt.stack((x, z.square()), 1)
        grad_x = G[:, 0]
        grad_z = 2 * G[:, 1] * z
op f(x[n,c], z[n,c]; size(k)=2) -> y; y[n,c] = logsumexp[k](where(k == 0, x[n,c], 2*z[n,c]))
    y = torch.logsumexp(torch.stack((x, 2 * z), 0), 0)
# Sums, of which only the shape is kept; groups are counted from the end that they lack.
op f(x[i,j]) -> y; y[i] = sum[j](x[i,j]**2)
    y = x.square().sum(1)
op f(x[i,j]) -> y; y = sum[i,j](x[i,j])
    y = x.sum()
        grad_x = G.expand(x_shape)
op f(x[i,j]) -> y; y[j] = mean[i](x[i,j])
    y = x.mean(0)
op f(x[i], z[j]) -> y; y = sum[i,j](x[i]*z[j])
    y = x.sum() * z.sum()
op f(A[i,k], B[i,j,k]) -> y; y[i,j] = sum[k](A[i,k]*B[i,j,k])
    y = (A.unsqueeze(1) * B).sum(2)
op f(x[*p,k]) -> y; y[*p] = sum[k](x[*p,k]**2)
    y = x.square().sum(-1)
        grad_x = (2 * G).unsqueeze(-1) * x
# Contractions are products of matrices, and so are their gradients.
op f(A[i,k], B[k,j]) -> y; y[i,j] = sum[k](A[i,k]*B[k,j])
    y = A @ B
        grad_A = G @ B.mT
        grad_B = A.mT @ G
op f(A[k,i], B[j,k]) -> y; y[i,j] = sum[k](A[k,i]*B[j,k])
    y = A.mT @ B.mT
op f(A[b,i,k], B[b,j,k]) -> y; y[b,i,j] = sum[k](A[b,i,k]*B[b,j,k])
    y = A @ B.mT
op f(A[i,k], v[k]) -> y; y[i] = sum[k](A[i,k]*v[k])
    y = A @ v
op f(u[k], v[k]) -> y; y = sum[k](u[k]*v[k])
    y = (u * v).sum()
op f(A[i,j,k], B[k,j,s], c[s]) -> y; y[i] = sum[j,k,s](A[i,j,k]*B[k,j,s]*c[s])
    y = (A * (B.transpose(0, 1) @ c)).sum((1, 2))
op f(x[n,k], w[k]) -> y; y[n] = mean[k](x[n,k]*w[k])/size(n)
    y = x @ w / (x.shape[0] * x.shape[1])
        grad_x = G.unsqueeze(1) * w / (x_shape[0] * x_shape[1])
        grad_w = x.mT @ G / (x_shape[0] * x_shape[1])
op f(x[n,(t d)], w[d]; size(t)=2) -> y; y[n,t] = sum[d](x[n,(t d)]*w[d])
    y = x.unflatten(1, (2, w.shape[0])) @ w
        grad_x = (w * G.unsqueeze(2)).flatten(1, 2)
        grad_w = (G.unsqueeze(2) * x.unflatten(1, (2, w_shape[0]))).sum((0, 1))
# A product is added by its call, unless it is read twice.
op f(A[i,k], B[k,j], C[i,j]) -> y; y[i,j] = C[i,j] + 2*sum[k](A[i,k]*B[k,j])
    y = torch.addmm(C, A, B, alpha=2)
        grad_A = 2 * (G @ B.mT)
        grad_B = 2 * (A.mT @ G)
        grad_C = G
op f(A[i,k], B[k,j], C[i,j]) -> y, z; z[i,j] = sum[k](A[i,k]*B[k,j]); y[i,j] = C[i,j] + z[i,j]
    z = A @ B
    y = C + z
# A convolution takes what its channels are shifted by,
op f(x[n,c,u], w[o,c,k]) -> y; y[n,o,t] = sum[c,k](x[n,c,2*t+k]*w[o,c,k])
    y = torch.nn.functional.conv1d(x, w, stride=2)
        grad_x = torch.nn.grad.conv1d_input(x_shape, w, G, stride=2)
        grad_w = torch.nn.grad.conv1d_weight(x, w_shape, G, stride=2)
op f(x[n,g,c,u], w[g,o,c,k], b[g,o], d[o]) -> y; \
  y[n,g,o,t] = b[g,o] + d[o] + sum[c,k](x[n,g,c,t+k]*w[g,o,c,k])
    y = torch.nn.functional.conv1d(x.flatten(1, 2), w.flatten(0, 1), b.flatten(0, 1), \
      groups=x.shape[1]).unflatten(1, (x.shape[1], w.shape[1])) + d.unsqueeze(1)
op f(x[n,c,u], w[o,c,k], b[o], d[n,o]) -> y; \
  y[n,o,t] = 2*b[o] + d[n,o] + sum[c,k](x[n,c,t+k]*w[o,c,k])
    y = torch.nn.functional.conv1d(x, w, 2 * b) + d.unsqueeze(2)
op f(x[n,c,t], w[c,o,k], b[o]; size(u)=2*size(t) + size(k) - 2) -> y; \
  y[n,o,u] = b[o] + sum[c,t,k | u == 2*t + k](x[n,c,t]*w[c,o,k])
    y = torch.nn.functional.conv_transpose1d(x, w, b, stride=2)
# unless that is of the places, or subtracted from, or there are no channels.
op f(x[n,c,u], w[o,c,k], b[t]) -> y; y[n,o,t] = b[t] + sum[c,k](x[n,c,t+k]*w[o,c,k])
    y = b + torch.nn.functional.conv1d(x.narrow(2, 0, w.shape[2] + b.shape[0] - 1), w)
op f(x[n,c,u], w[o,c,k], b[o]) -> y; y[n,o,t] = b[o] - sum[c,k](x[n,c,t+k]*w[o,c,k])
    y = b.unsqueeze(1) - torch.nn.functional.conv1d(x, w)
op f(x[u], w[k], b) -> y; y[t] = b + sum[k](x[t+k]*w[k])
    y = b + torch.nn.functional.conv1d(x.unsqueeze(0), w.unsqueeze(0).unsqueeze(1)).squeeze(0)
# Sums by place are added into what stands beside them,
op f(x[v,d], y[k,d], s[k]: int; alpha=1) -> z; z[v,d] = x[v,d] + alpha*sum[k | s[k] == v](y[k,d])
    y = rt.index_add_inside(x, 0, s, y, alpha=alpha)
        grad_x = G
        grad_y = alpha * rt.index_select_inside(G, 0, s)
op f(x[n,v], y[n,k], s[n,k]: int) -> z; z[n,v] = x[n,v]**2 - 3*sum[k | s[n,k] == v](y[n,k])
    y = rt.scatter_add_inside(x.square(), 1, s, -3 * y)
        grad_x = 2 * G * x
        grad_y = -3 * rt.gather_inside(G, 1, s)
# which without all axes is no tensor to add into.
op f(x[v,d], y[k,d], s[k]: int; alpha=1) -> z; z[v,d] = x[0,d] + sum[k | s[k] == v](alpha*y[k,d])
op f(x[v,d], y[k,d], s[k]: int; alpha=1) -> z; z[v,d] = x[v,d] + alpha*sum[k | s[k] == v](y[k,0])
op f(x[v,d], y[k,d], s[k]: int; alpha=1) -> z; \
  z[v,d] = x[v,d] + alpha*sum[k | s[k] == v](1)*y[0,d]
# Of other layouts.
op f(x[u,c], w[k,c,m]) -> y; y[m,t] = sum[c,k](x[t+k,c]*w[k,c,m])
op f(x[c,u], w[c,k]) -> y; y[t] = sum[c,k](x[c,t+size(k)-1-k]*w[c,k])
op f(x[u], w[k]) -> y; y[t] = sum[k](x[t+k]*w[k])
# One side of a diagonal is a call,
op f(x[n,i,j]) -> y; y[n,i,j] = [j <= i]*x[n,i,j]**2
    y = x.square().tril()
op f(x[n,i,j]) -> y; y[n,i,j] = [j < i]*x[n,i,j]**2
    y = x.square().tril(-1)
op f(x[n,i,j]) -> y; y[n,i,j] = [j >= i]*x[n,i,j]**2
    y = x.square().triu()
op f(x[n,i,j]) -> y; y[n,i,j] = [j > i + 1]*x[n,i,j]**2
    y = x.square().triu(2)
op f(x[n,i,j]) -> y; y[n,i,j] = [j <= i + size(n)]*x[n,i,j]**2
    y = x.square().tril(x.shape[0])
# which reads what its condition guards alone;
op f(x[n,i,j]) -> y; y[n,i,j] = where(i > j, log(x[n,i,j] - 0.4*[i > j]), 0)
op f(x[n,i,j]) -> y; y[n,i,j] = where(i >= j, exp(x[n,i,j]), 0)
# not of other axes, of two bounds, or of what has one of the indices.
op f(x[n,i,j]) -> y; y[n,i,j] = [n <= i]*x[n,i,j]**2
op f(x[n,i,j]) -> y; y[n,i,j] = [i <= j and j <= i + 1]*x[n,i,j]**2
op f(x[n,i,j]) -> y; y[n,i,j] = [2*i <= j]*x[n,i,j]**2
op f(x[n,i,j]) -> y; y[n,i] = sum[j | j <= i](x[n,i,j]**2)
op f(x[n,i,j]) -> y; y[n,j] = sum[i | j <= i](x[n,i,j])*2
# What leaves an axis at one end and comes in at the other is one call.
op f(x[n,t]) -> y; y[n,t] = where(t >= 1, x[n,t - 1], x[n,t - 1 + size(t)])
    y = x.roll(1, 1)
        grad_x = G.roll(-1, 1)
# More than a read is rolled, and what stands beside is not.
op f(x[t,n], w[t]) -> y; y[t,n] = w[t]*where(t < size(t) - 1, x[t + 1,n]**3, \
  x[t + 1 - size(t),n]**3)
    y = w.unsqueeze(1) * (x ** 3).roll(-1, 0)
op f(x[n,t]; s=2) -> y; y[n,t] = exp(x[n,(t - s) % size(t)])
    y = x.roll(s, 1).exp()
        minus_s = -s
        grad_x = G.roll(minus_s, 1) * y.roll(minus_s, 1)
op f(x[n,t]; s=9) -> y; y[n,t] = x[n,(t + s) % size(t)]*x[n,t]
    y = x * x.roll(-s, 1)
        grad_x = G * x.roll(-s, 1) + G.roll(s, 1) * x.roll(s, 1)
# No code is said, only what it computes.
op f(x[i,j]) -> y; y[i] = sum[j | j >= i](exp(x[i,j]))
op f(x[i]) -> y; y[i] = x[i]**(-1/2) + x[i]**(1/2) + 1/x[i]**2
op f(x[n], z[n]; size(k)=3) -> y; y[n,k] = [k == 0]*x[n] + [k == 1]*z[n]**2
"""
)


@pytest.mark.parametrize("text", CODE)
def test_the_code_is_what_one_would_write_and_right(text):
    assert_code(text, *CODE[text])
    op = made(text)
    assert not [check for check in checks_of(op, load(op), columns=VALUES) if not check.ok]
    if any(t.kind == "int" for t in op.inputs):
        assert_right(text)


@pytest.mark.parametrize("s", [3, -1])
def test_each_branch_of_a_condition_of_parameters_is_right(s):
    assert_right("op f(x[i]; s=2) -> y; y[i] = where(s > 0, x[i]**2, x[i])", {"s": s})
