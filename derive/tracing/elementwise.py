"""Operations of each element: functions, arithmetic, comparisons, choices."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import sympy

from derive.errors import DeriveError
from derive.tracing.folded import chosen, compared
from derive.tracing.reader import Reader, operation
from derive.tracing.values import Apply, Node, Number, Read, Value, apply, walk

_SAME = (
    "exp log log1p expm1 exp2 log2 log10 sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh "
    "sigmoid relu erf erfc erfinv lgamma digamma abs sign floor softplus square"
).split()


def number(x: Any) -> Node:
    return Number(x)


def call(name: str) -> Callable[..., Node]:
    return lambda *args: Apply(name, tuple(args))


def op(symbol: str) -> Callable[[Node, Node], Node]:
    return lambda a, b: Apply(symbol, (a, b))


def plus(a: Node, b: Node) -> Node:
    return apply("+", a, b)


def times(a: Node, b: Node) -> Node:
    return apply("*", a, b)


for _name in _SAME:

    def _function(reader: Reader, x: Value, *, _own: str = _name) -> Value:
        return reader.elementwise(call(_own), x, kind="float" if _own != "abs" else None)

    operation(_name, f"special_{_name}", f"{_name}_")(_function)


@operation("softplus")
def softplus(reader: Reader, x: Value, beta: Any = 1, threshold: Any = 20) -> Value:
    if beta == 1:
        return reader.elementwise(call("softplus"), x)
    return reader.elementwise(
        lambda a: apply("/", apply("softplus", times(number(beta), a)), number(beta)), x
    )


@operation("log_sigmoid", "log_sigmoid_forward")
def log_sigmoid(reader: Reader, x: Value) -> Any:
    made = reader.elementwise(call("logsigmoid"), x)
    return (made, None) if "forward" in str(reader.node.target) else made


@operation("xlogy", "special_xlogy")
def xlogy(reader: Reader, x: Any, y: Any) -> Value:
    """x*log(y), and 0 where x is."""

    def f(a: Node, b: Node) -> Node:
        return where(apply("==", a, number(0)), number(0), times(a, apply("log", b)))

    return reader.elementwise(f, x, y)


@operation("copy_", "copy")
def copy(reader: Reader, x: Value, source: Any, *_: Any) -> Value:
    made = reader.elementwise(lambda a, b: b, x, source)
    return made


@operation("neg", "neg_")
def neg(reader: Reader, x: Value) -> Value:
    return reader.elementwise(call("neg"), x)


@operation("reciprocal")
def reciprocal(reader: Reader, x: Value) -> Value:
    return reader.elementwise(lambda a: apply("/", number(1), a), x)


@operation("silu", "silu_")
def silu(reader: Reader, x: Value) -> Value:
    x = reader.simple(x)
    return reader.elementwise(lambda a: times(a, apply("sigmoid", a)), x)


@operation("gelu")
def gelu(reader: Reader, x: Value, approximate: str = "none") -> Value:
    x = reader.simple(x)
    half = number(sympy.Rational(1, 2))

    def exact(a: Node) -> Node:
        inner = apply("erf", apply("/", a, apply("sqrt", number(2))))
        return times(times(half, a), plus(number(1), inner))

    def by_tanh(a: Node) -> Node:
        cubed = times(number(0.044715), apply("**", a, number(3)))
        root = apply("sqrt", apply("/", number(2), Apply("pi", ())))
        inner = apply("tanh", times(root, plus(a, cubed)))
        return times(times(half, a), plus(number(1), inner))

    return reader.elementwise(by_tanh if approximate == "tanh" else exact, x)


@operation("mish")
def mish(reader: Reader, x: Value) -> Value:
    x = reader.simple(x)
    return reader.elementwise(lambda a: times(a, apply("tanh", apply("softplus", a))), x)


def where(c: Node, a: Node, b: Node) -> Node:
    return chosen(c, a, b)


@operation("leaky_relu", "leaky_relu_")
def leaky_relu(reader: Reader, x: Value, slope: Any = 0.01) -> Value:
    x = reader.simple(x)

    def f(a: Node) -> Node:
        return where(apply(">", a, number(0)), a, times(number(slope), a))

    return reader.elementwise(f, x)


@operation("elu", "elu_")
def elu(
    reader: Reader, x: Value, alpha: Any = 1.0, scale: Any = 1.0, input_scale: Any = 1.0
) -> Value:
    x = reader.simple(x)

    def f(a: Node) -> Node:
        inner = a if input_scale == 1 else times(a, number(input_scale))
        low = apply("expm1", inner)
        low = low if alpha == 1 else times(number(alpha), low)
        made = where(apply(">", a, number(0)), a, low)
        return made if scale == 1 else times(number(scale), made)

    return reader.elementwise(f, x)


@operation("selu")
def selu(reader: Reader, x: Value) -> Value:
    return elu(reader, x, 1.6732632423543772, 1.0507009873554805)


@operation("celu")
def celu(reader: Reader, x: Value, alpha: Any = 1.0) -> Value:
    x = reader.simple(x)

    def f(a: Node) -> Node:
        low = times(number(alpha), apply("expm1", apply("/", a, number(alpha))))
        return where(apply(">", a, number(0)), a, low)

    return reader.elementwise(f, x)


@operation("clamp", "clamp_", "clamp_min", "clamp_max", "hardtanh", "hardtanh_", "relu6")
def clamp(reader: Reader, x: Value, low: Any = None, high: Any = None, **named: Any) -> Value:
    name = reader.called
    low, high = named.get("min", low), named.get("max", high)
    if name == "relu6":
        low, high = 0, 6
    if name.startswith("hardtanh"):
        low, high = (-1 if low is None else low), (1 if high is None else high)
    if name == "clamp_max":
        low, high = None, low
    low = sympy.S.NegativeInfinity if low is None else low
    high = sympy.S.Infinity if high is None else high
    return reader.elementwise(call("clamp"), x, low, high)


@operation("hardsigmoid")
def hardsigmoid(reader: Reader, x: Value) -> Value:
    def f(a: Node) -> Node:
        return apply("/", apply("clamp", plus(a, number(3)), number(0), number(6)), number(6))

    return reader.elementwise(f, x)


@operation("hardswish", "hardswish_")
def hardswish(reader: Reader, x: Value) -> Value:
    x = reader.simple(x)

    def f(a: Node) -> Node:
        inner = apply("clamp", plus(a, number(3)), number(0), number(6))
        return apply("/", times(a, inner), number(6))

    return reader.elementwise(f, x)


# -------------------------------------------------------------------- arithmetic


def _scaled(b: Any, alpha: Any, reader: Reader) -> Any:
    if alpha == 1:
        return b
    return reader.elementwise(times, alpha, b)


@operation("add", "add_", "sub", "sub_", "subtract", "rsub")
def add(reader: Reader, a: Any, b: Any, alpha: Any = 1) -> Value:
    name = str(reader.node.target)
    b, symbol = _scaled(b, alpha, reader), "-" if "sub" in name else "+"
    a, b = (b, a) if "rsub" in name else (a, b)
    return reader.elementwise(op(symbol), a, b)


@operation("mul", "mul_", "multiply")
def mul(reader: Reader, a: Any, b: Any) -> Value:
    return reader.elementwise(op("*"), a, b)


@operation("div", "div_", "true_divide", "divide")
def div(reader: Reader, a: Any, b: Any, rounding_mode: str | None = None) -> Value:
    if rounding_mode is None:
        return reader.elementwise(op("/"), a, b, kind="float")
    if rounding_mode != "floor":
        raise DeriveError(f"a quotient rounded by {rounding_mode!r} is not read")
    return reader.elementwise(lambda x, y: apply("floor", apply("/", x, y)), a, b)


@operation("remainder")
def remainder(reader: Reader, a: Any, b: Any) -> Value:
    """a - b*floor(a/b), which has the sign of b."""
    return _left(reader, a, b, lambda x: apply("floor", x))


@operation("fmod")
def fmod(reader: Reader, a: Any, b: Any) -> Value:
    """What is left of a, which has the sign of a."""
    return _left(reader, a, b, lambda x: times(apply("sign", x), apply("floor", apply("abs", x))))


def _left(reader: Reader, a: Any, b: Any, whole: Callable[[Node], Node]) -> Value:
    a = reader.simple(reader.value(a))

    def f(x: Node, y: Node) -> Node:
        if y == number(1):
            return apply("-", x, whole(x))
        return apply("-", x, times(y, whole(apply("/", x, y))))

    return reader.elementwise(f, a, b)


@operation("pow", "pow_", "float_power")
def power(reader: Reader, a: Any, b: Any) -> Value:
    return reader.elementwise(op("**"), a, b)


@operation("maximum", "minimum", "atan2", "hypot", "logaddexp")
def two(reader: Reader, a: Any, b: Any) -> Value:
    name = reader.called
    return reader.elementwise(call(name), a, b)


@operation("addcmul", "addcmul_")
def addcmul(reader: Reader, x: Value, a: Value, b: Value, value: Any = 1) -> Value:
    product = reader.elementwise(op("*"), a, b)
    return reader.elementwise(op("+"), x, _scaled(product, value, reader))


@operation("addcdiv", "addcdiv_")
def addcdiv(reader: Reader, x: Value, a: Value, b: Value, value: Any = 1) -> Value:
    quotient = reader.elementwise(op("/"), a, b)
    return reader.elementwise(op("+"), x, _scaled(quotient, value, reader))


@operation("lerp")
def lerp(reader: Reader, a: Value, b: Value, weight: Any) -> Value:
    return reader.elementwise(lambda x, y, w: plus(x, times(w, apply("-", y, x))), a, b, weight)


# -------------------------------------------------------------------- truths

_COMPARED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}

for _name, _symbol in _COMPARED.items():

    def _compared(reader: Reader, a: Any, b: Any, *, _own: str = _symbol) -> Value:
        return reader.elementwise(partial(compared, _own), a, b, kind="bool")

    operation(_name)(_compared)


@operation("logical_and", "bitwise_and", "__and__")
def conjunction(reader: Reader, a: Any, b: Any) -> Value:
    return reader.elementwise(op("and"), a, b, kind="bool")


@operation("logical_or", "bitwise_or", "__or__")
def disjunction(reader: Reader, a: Any, b: Any) -> Value:
    return reader.elementwise(op("or"), a, b, kind="bool")


@operation("logical_not", "bitwise_not")
def negation(reader: Reader, a: Value) -> Value:
    return reader.elementwise(call("not"), a, kind="bool")


@operation("where")
def choice(reader: Reader, c: Value, a: Any, b: Any) -> Value:
    kinds = {reader.value(x).kind for x in (a, b)}
    kind = next(k for k in ("float", "int", "bool") if k in kinds)
    return reader.elementwise(where, _truth(reader, c), a, b, kind=kind)


@operation("masked_fill", "masked_fill_")
def masked_fill(reader: Reader, x: Value, mask: Value, value: Any) -> Value:
    return reader.elementwise(where, _truth(reader, mask), value, x, kind=x.kind)


def _truth(reader: Reader, x: Value) -> Value:
    if x.kind == "bool":
        return x
    return reader.elementwise(op("!="), x, 0, kind="bool")


# -------------------------------------------------------------------- the same elements


@operation(
    *("clone", "detach", "alias", "contiguous", "lift_fresh_copy", "to", "_to_copy", "type_as"),
    *("float", "double", "requires_grad_", "_conj", "resolve_conj", "positive", "view_as_real"),
    *("dropout", "native_dropout", "feature_dropout", "lift_fresh", "half", "bfloat16", "detach_"),
)
def same(reader: Reader, x: Value, *args: Any, **named: Any) -> Value:
    name = reader.called
    if "dropout" in name:
        p, train = (*args, *named.values())[:2]
        if p and train:
            raise DeriveError("it draws random numbers; call it in eval mode, or give the mask")
        return x
    if name.startswith("detach"):
        # Of numbers and positions alone there is no gradient.
        plain = x.kind != "float" or not any(isinstance(part, Read) for part in walk(x.node))
        return x if plain else reader.elementwise(call("detach"), x)
    made = reader.node.meta["val"]
    kind = "bool" if "bool" in str(made.dtype) else "int" if "int" in str(made.dtype) else "float"
    if kind == "int" and x.kind == "float":
        raise DeriveError("a cast of floats to integers is not read")
    return Value(x.axes, x.node, kind) if kind != x.kind else x
