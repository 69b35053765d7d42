"""Networks of any depth as text, to see what grows with it."""

from collections.abc import Callable, Iterator

__all__ = ["CHAINS"]


def _linear(depth: int, norm: bool = False) -> Iterator[tuple[str, list[str], list[str]]]:
    """(output, inputs, equations) of each layer: linear, batch norm where asked for, tanh."""
    before = "x"
    for n in range(1, depth + 1):
        i, j = f"i{n - 1}", f"i{n}"
        inputs = [f"W{n}[{i},{j}]", f"b{n}[{j}]"]
        body = [f"a{n}[n,{j}] = sum[{i}]({before}[n,{i}]*W{n}[{i},{j}]) + b{n}[{j}]"]
        last = f"a{n}"
        if norm:
            inputs += [f"g{n}[{j}]", f"c{n}[{j}]"]
            body += [
                f"mu{n}[{j}] = mean[n](a{n}[n,{j}])",
                f"var{n}[{j}] = sum[n]((a{n}[n,{j}] - mu{n}[{j}])**2) / (size(n) - 1)",
                f"xhat{n}[n,{j}] = (a{n}[n,{j}] - mu{n}[{j}]) * (var{n}[{j}] + 1/100000)**(-1/2)",
                f"z{n}[n,{j}] = g{n}[{j}]*xhat{n}[n,{j}] + c{n}[{j}]",
            ]
            last = f"z{n}"
        body.append(f"h{n}[n,{j}] = tanh({last}[n,{j}])")
        yield f"h{n}", inputs, body
        before = f"h{n}"


def _text(layers: Iterator[tuple[str, list[str], list[str]]], all_outputs: bool = False) -> str:
    outputs, inputs, body = [], ["x[n,i0]"], []
    for output, more, equations in layers:
        outputs.append(output)
        inputs += more
        body += equations
    returned = ", ".join(outputs if all_outputs else outputs[-1:])
    return "\n".join([f"op chain({', '.join(inputs)}) -> {returned}", *body])


def linear(depth: int) -> str:
    """(linear -> tanh)^depth"""
    return _text(_linear(depth))


def batch_norm(depth: int) -> str:
    """(linear -> batch norm -> tanh)^depth"""
    return _text(_linear(depth, norm=True))


def outputs(depth: int) -> str:
    """(linear -> tanh)^depth, every layer an output."""
    return _text(_linear(depth), all_outputs=True)


def loss(depth: int) -> str:
    """(linear -> batch norm -> tanh)^depth -> cross-entropy of class indices"""
    head, *body = _text(_linear(depth, norm=True)).split("\n")
    head = head.replace(f") -> h{depth}", ", T[n]: int) -> loss")
    body.append(f"p[n,i{depth}] = log_softmax[i{depth}](h{depth}[n,i{depth}])")
    return "\n".join([head, *body, "loss = -mean[n](p[n,T[n]])"])


def residual(depth: int) -> str:
    """h + f(h), a network of one hidden layer each."""
    inputs, body, before = ["x[n,i]"], [], "x"
    for n in range(1, depth + 1):
        inputs += [f"W{n}[i,j]", f"b{n}[j]", f"V{n}[j,i]"]
        body += [
            f"t{n}[n,j] = tanh(sum[i]({before}[n,i]*W{n}[i,j]) + b{n}[j])",
            f"h{n}[n,i] = {before}[n,i] + sum[j](t{n}[n,j]*V{n}[j,i])",
        ]
        before = f"h{n}"
    return "\n".join([f"op chain({', '.join(inputs)}) -> {before}", *body])


def shared(depth: int) -> str:
    """The same weights in every layer."""
    body, before = [], "x"
    for n in range(1, depth + 1):
        body += [
            f"t{n}[n,j] = tanh(sum[i]({before}[n,i]*W[i,j]) + b[j])",
            f"h{n}[n,i] = sum[j](t{n}[n,j]*W[i,j])",
        ]
        before = f"h{n}"
    return "\n".join([f"op chain(x[n,i], W[i,j], b[j]) -> {before}", *body])


def attention(depth: int) -> str:
    """Causal attention and a shift to mean zero, h + f(h)."""
    inputs, body, before = ["x[b,t,c]"], [], "x"
    for n in range(1, depth + 1):
        inputs += [f"Q{n}[c,k]", f"K{n}[c,k]"]
        body += [
            f"q{n}[b,t,k] = sum[c]({before}[b,t,c]*Q{n}[c,k])",
            f"k{n}[b,s,k] = sum[c]({before}[b,s,c]*K{n}[c,k])",
            f"a{n}[b,t,s] = softmax[s | s <= t](sum[k](q{n}[b,t,k]*k{n}[b,s,k]))",
            f"y{n}[b,t,c] = {before}[b,t,c] + sum[s](a{n}[b,t,s]*{before}[b,s,c])",
            f"h{n}[b,t,c] = y{n}[b,t,c] - mean[c](y{n}[b,t,c])",
        ]
        before = f"h{n}"
    return "\n".join([f"op chain({', '.join(inputs)}) -> {before}", *body])


def elementwise(depth: int) -> str:
    """Nothing but scalar functions, and one weight: all of it could be one formula."""
    body, before = [], "x"
    for n in range(1, depth + 1):
        body.append(f"h{n}[i] = sin({before}[i])*w[i]")
        before = f"h{n}"
    return "\n".join([f"op chain(x[i], w[i]) -> {before}", *body])


CHAINS: dict[str, Callable[[int], str]] = {
    made.__name__: made
    for made in (*(linear, batch_norm, outputs, loss, residual, shared, attention, elementwise),)
}
"""Depth -> text."""
