"""The torch operations of generated code, as a table.

All properties of an operation are in its row of `TORCH_OPS`; an operation without a row is
elementwise. Only the choice of operations is elsewhere: in the lowering.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from derive.program import flop_rules, shape_rules
from derive.program.flop_rules import Flops, Steps
from derive.program.shape_rules import Shape, elements
from derive.program.torch_ir import (
    Binary,
    Code,
    FunctionCall,
    Literal,
    MethodCall,
    Name,
    Unary,
    subexpressions,
)

# -------------------------------------------------------------------- the operations

MONOTONE = "monotone"
"""Selects an element of a tensor, a number, or its magnitude: rounding commutes with it."""
EXACT_ALONE = "exact"
"""Exact in half precision, if its operand is."""
ONCE = "once"
"""In bfloat16, the float32 result of the same numbers, rounded once. On a CPU the tests ensure
this; on CUDA it computes in ``opmath_t`` or accumulates in ``acc_t``. A softmax may round the
exponentials once more.
"""


@dataclass(frozen=True)
class TorchOp:
    """name(x, ...) or x.name(...): its shape rule, its cost and its properties.

    A ``view`` computes nothing, and if it ``overlaps``, one element may appear at several
    positions. The result of an operation that ``ends_in_view`` is a view of a new tensor. ``free``
    operations are not counted, and ``light`` ones are repeated rather than named. One that
    ``makes`` a tensor reads no elements. One that ``contracts`` sums products, and one that
    ``keeps`` has an argument keepdim. One ``at_positions`` raises an error for a position out of
    range, a ``limited`` one for some numbers. One that ``slips`` has a forward-mode rule that is
    somewhere wrong or not finite, or whose derivative is, although the tangent is finite.
    ``before`` returns the steps before the last. The result is ``new`` if it aliases no operand. It
    is ``reshaped`` if it has all elements of one tensor, in any order, without overlaps.
    """

    name: str
    shape: Callable[..., Shape] | None = None
    """None: the shape to which the tensor arguments broadcast."""
    flops: Flops = flop_rules.per_result_element
    stem: str = ""
    """The stem of generated names for its values."""
    suffix: str = ""
    """The suffix of generated names if its operand has a name."""
    view: bool = False
    overlaps: bool = False
    ends_in_view: bool = False
    free: bool = False
    light: bool = False
    makes: bool = False
    contracts: bool = False
    keeps: bool = False
    at_positions: bool = False
    limited: bool = False
    slips: bool = False
    several: bool = False
    """It returns a tuple, and ``shape`` returns the shapes of its items."""
    fused: bool = False
    """No compiler generates code that is as fast."""
    exact: tuple[int, ...] = ()
    """Positions of arguments of a contraction that keep their dtype."""
    absent: tuple[tuple[int, int], ...] = ()
    """Positions of arguments that may be None, and the numbers that None represents."""
    before: Callable[..., Steps] = flop_rules.no_step
    new: bool = False
    reshaped: bool = False
    half: str = ""
    """The relation of a half-precision result to float32: `MONOTONE`, `EXACT_ALONE` or `ONCE`.

    Operations that only move elements need none of these.
    """
    compares: tuple[int, ...] = ()
    """Positions of arguments that only decide the selection."""
    in_float32: bool = False
    """Its comparison does not round numbers to half precision."""
    over: str = ""
    """How to write the result over the first operand, of the same shape.

    "_" means the in-place method ``name_``; any other value is the keyword of the output tensor.
    """


def _view(name: str, shape: Callable[..., Shape], free: bool = True, **columns: Any) -> TorchOp:
    return TorchOp(name, shape, flop_rules.none, view=True, free=free, **columns)


def _moves(name: str, shape: Callable[..., Shape], **columns: Any) -> TorchOp:
    """An operation without arithmetic."""
    return TorchOp(name, shape, flop_rules.none, **columns)


def _adds(name: str, source: int) -> TorchOp:
    """A scatter that adds elements of a source to a tensor."""
    return TorchOp(
        name,
        shape_rules.like,
        flop_rules.per_argument_element(source),
        "placed",
        at_positions=True,
        new=True,
        over="_",
    )


def _reduces(name: str, stem: str = "", suffix: str = "", slips: bool = False) -> TorchOp:
    given = name, shape_rules.reduce, flop_rules.per_argument_element(0), stem, suffix
    return TorchOp(*given, keeps=True, slips=slips, new=True)


def _multi_result(
    name: str, shape: Callable[..., Any], *absent: tuple[int, int], stem: str = "normed"
) -> TorchOp:
    (weight, _), *_ = absent

    def before(*args: Any, **named: Any) -> Steps:
        """Yield the product of the weight and a number, if both are given."""
        if "scale" in named and isinstance(args[weight], tuple):
            yield args[weight], elements(args[weight])

    given = name, shape, flop_rules.normalised, stem
    return TorchOp(*given, several=True, absent=absent, before=before)


def _each_of(name: str, over: str = "_", stem: str = "", suffix: str = "") -> TorchOp:
    """An elementwise operation."""
    return TorchOp(name, stem=stem, suffix=suffix, new=True, over=over)


def _window_ops() -> Iterator[TorchOp]:
    """Yield the operations that exist for one, two and three axes of windows."""
    yield TorchOp("_conv_of_each", shape_rules.conv, flop_rules.conv, contracts=True, new=True)
    yield TorchOp(
        "_conv_input_of_each",
        shape_rules.conv_input,
        flop_rules.conv_input,
        contracts=True,
        new=True,
    )
    for n in (1, 2, 3):
        yield TorchOp(
            f"conv{n}d",
            shape_rules.conv,
            flop_rules.conv,
            contracts=True,
            absent=((2, 0),),
            new=True,
        )
        yield TorchOp(
            f"conv{n}d_input",
            shape_rules.conv_input,
            flop_rules.conv_input,
            contracts=True,
            new=True,
        )
        yield TorchOp(
            f"conv{n}d_weight",
            shape_rules.conv_weight,
            flop_rules.conv_weight,
            contracts=True,
            new=True,
        )
        yield TorchOp(
            f"conv_transpose{n}d",
            shape_rules.conv_transpose,
            flop_rules.conv_transpose,
            contracts=True,
            absent=((2, 0),),
            new=True,
        )
        yield TorchOp(f"avg_pool{n}d", shape_rules.pool(n), flop_rules.pool(n), ends_in_view=n == 1)
        yield TorchOp(f"avg_pool{n}d_backward", lambda _, x, *__: x, flop_rules.spread(n))
        yield TorchOp(f"max_pool{n}d", shape_rules.pool(n), flop_rules.pool(n), ends_in_view=n == 1)


_FUNCTIONS = (
    "abs acos asin atan ceil clamp clamp_max clamp_min cos cosh digamma erf erfc expm1 floor frac "
    "lgamma log log1p reciprocal relu round sigmoid sign sin sinh sqrt tan tanh trunc"
)
_READS = "_read_at", "_read_at_if_any"
_IF_ANY = "_index_added_if_any", "_scatter_added_if_any"
_INSIDE = "_index_added_inside", "_scatter_added_inside"
_ACTIVATIONS = "elu gelu hardshrink hardtanh leaky_relu sigmoid silu tanh threshold"
_SMOOTH = "celu elu gelu hardtanh leaky_relu logsigmoid mish selu silu softplus"

_ROWS = (
    _view("unsqueeze", shape_rules.unsqueeze, light=True, reshaped=True),
    _view("squeeze", shape_rules.squeeze, light=True, reshaped=True),
    _view("expand", shape_rules.expand, light=True, overlaps=True),
    _view("select", shape_rules.squeeze, light=True, at_positions=True),
    _view("transpose", shape_rules.transpose, light=True, reshaped=True),
    _view("permute", shape_rules.permute, light=True, reshaped=True),
    _view("movedim", shape_rules.movedim, light=True, reshaped=True),
    _view("diagonal", shape_rules.diagonal),
    _view("reshape", shape_rules.expand, reshaped=True),
    _view("flatten", shape_rules.flatten, reshaped=True),
    _view("unflatten", shape_rules.unflatten, reshaped=True),
    _view("_flatten", shape_rules.flatten, reshaped=True),
    _view("_unflatten", shape_rules.unflatten, reshaped=True),
    _view("narrow", shape_rules.narrow, free=False, at_positions=True),
    _view("_run_of", shape_rules.narrow, free=False, at_positions=True),
    _moves("_window", shape_rules.narrow, new=True),
    _view("unfold", shape_rules.unfold, free=False, overlaps=True),
    _view("detach", shape_rules.like, free=False),
    _view("_no_view", shape_rules.like),
    TorchOp("_with_cotangent", shape_rules.like),
    _view("_copied", shape_rules.like, free=False, overlaps=True),
    TorchOp("dim", free=True, light=True),
    TorchOp("numel", free=True),
    _reduces("sum", "total", "sum"),
    _reduces("mean", "average", "mean"),
    _reduces("logsumexp", "lse", slips=True),  # nan where it is -inf
    TorchOp(
        "vector_norm", shape_rules.norm, flop_rules.per_argument_element(0), keeps=True, new=True
    ),
    *map(_reduces, ("prod", "max", "min", "amax", "amin", "argmax", "argmin", "any", "all")),
    TorchOp("sum_to_size", shape_rules.expand, flop_rules.per_argument_element(0)),
    _moves("gather", shape_rules.gather, stem="picked", at_positions=True, new=True),
    _moves("index_select", shape_rules.index_select, stem="picked", at_positions=True, new=True),
    _moves("_gathered_if_any", shape_rules.gather, stem="picked", at_positions=True, new=True),
    _moves(
        "_selected_if_any", shape_rules.index_select, stem="picked", at_positions=True, new=True
    ),
    _moves("_gathered_inside", shape_rules.gather, stem="picked", new=True),
    _moves("_selected_inside", shape_rules.index_select, stem="picked", new=True),
    _moves("_gathered", shape_rules.gather, stem="picked", at_positions=True, new=True),
    *(
        _moves(name, shape_rules.read_at, stem="picked", at_positions=True, new=True)
        for name in _READS
    ),
    *(_moves(name, shape_rules.like, new=True) for name in ("flip", "roll")),
    *(
        _moves(name, shape_rules.like, stem="chosen", new=True, over="_")
        for name in ("tril", "triu")
    ),
    _moves("clone", shape_rules.like, new=True),
    _moves("to", shape_rules.like),
    _moves("diag_embed", shape_rules.diag_embed, new=True),
    _moves("pad", shape_rules.pad, new=True),
    _moves("cat", shape_rules.cat, new=True),
    _moves("stack", shape_rules.stack, new=True),
    _moves("_stacked", shape_rules.stack, new=True),
    TorchOp("where", None, flop_rules.none, "chosen", new=True),
    TorchOp("_where", None, flop_rules.none, "chosen", new=True),
    _each_of("threshold_backward", "grad_input", "chosen"),
    _moves("select_scatter", shape_rules.like, new=True),
    _moves("slice_scatter", shape_rules.like, at_positions=True, new=True),
    _adds("scatter_add", 3),
    *(_adds(name, 3) for name in ("_scatter_added", *_IF_ANY)),
    _adds("scatter_reduce", 3),
    _adds("index_add", 3),
    *(
        TorchOp(
            name,
            shape_rules.like,
            flop_rules.per_argument_element(3),
            "placed",
            new=True,
            ends_in_view=True,
        )
        for name in _INSIDE
    ),
    TorchOp(
        "index_put",
        shape_rules.like,
        flop_rules.per_argument_element(2),
        at_positions=True,
        new=True,
        over="_",
    ),
    _moves("new_zeros", shape_rules.expand, makes=True, stem="zeros", new=True),
    _moves("new_full", shape_rules.expand, makes=True, new=True),
    _moves("arange", shape_rules.arange, makes=True, stem="position", new=True),
    _moves("_positions", shape_rules.arange, makes=True, stem="position", new=True),
    _moves("full", shape_rules.single, makes=True, new=True),
    TorchOp(
        "einsum",
        shape_rules.einsum,
        flop_rules.einsum,
        "product",
        contracts=True,
        ends_in_view=True,
    ),
    TorchOp("addmm", shape_rules.addmm, flop_rules.addmm, contracts=True, new=True, over="out"),
    TorchOp("baddbmm", shape_rules.addmm, flop_rules.addmm, contracts=True, new=True, over="out"),
    *_window_ops(),
    _multi_result("_layer_normed", shape_rules.rows_normalised, (2, 1), (3, 0)),
    _multi_result("_batch_normed", shape_rules.normalised(1, 2), (1, 1), (2, 0)),
    _multi_result("_group_normed", shape_rules.normalised(0, 2), (1, 1), (2, 0)),
    _multi_result("_channel_normed", shape_rules.normalised(0, 2), (1, 1), (2, 0)),
    _multi_result("_layer_normed_gradients", shape_rules.row_gradients, (5, 1), stem="grads"),
    _multi_result("_batch_normed_gradients", shape_rules.normalised(1, 2), (4, 1), stem="grads"),
    _multi_result("_group_normed_gradients", shape_rules.normalised(1, 3), (4, 1), stem="grads"),
    _multi_result("_channel_normed_gradients", shape_rules.normalised(1, 2), (4, 1), stem="grads"),
    TorchOp(
        *("_attended", shape_rules.attended, flop_rules.attended, "attended"),
        contracts=True,
        several=True,
        fused=True,
        exact=(3, 4),
        absent=((4, 0),),
    ),
    TorchOp(
        *(
            "_attended_gradients",
            shape_rules.attended_gradients,
            flop_rules.attended_gradients,
            "grads",
        ),
        contracts=True,
        several=True,
        fused=True,
        exact=(5, 6, 7),
        absent=((7, 0),),
    ),
    TorchOp(
        "_class_loss", shape_rules.picked, flop_rules.none, absent=((2, 1),), slips=True, new=True
    ),
    TorchOp("_class_loss_slope", shape_rules.placed, flop_rules.none, absent=((2, 1),), new=True),
    TorchOp("logcumsumexp", slips=True),  # through exp(x - max x): 0 far below the maximum
    TorchOp("cumprod", slips=True),  # a quotient at zeros, of which the second derivative is nan
    TorchOp("atan2", slips=True),  # nan at (0, 0)
    *(_each_of(name) for name in _FUNCTIONS.split()),
    _each_of("exp", stem="e", suffix="exp"),
    _each_of("rsqrt", stem="inverse_root", suffix="inverse_root"),
    _each_of("sqrt", stem="root", suffix="root"),
    _each_of("square", stem="squared", suffix="squared"),
    _each_of("abs", stem="magnitude", suffix="magnitude"),
    _each_of("log", stem="logarithm", suffix="log"),
    _each_of("sigmoid", stem="gate", suffix="sigmoid"),
    _each_of("tanh", stem="bounded", suffix="tanh"),
    _each_of("relu", stem="positive", suffix="positive"),
    _each_of("clamp", stem="clamped", suffix="clamped"),
    _each_of("sign", stem="sign", suffix="sign"),
    *(_each_of(name, "out") for name in ("maximum", "minimum")),
    *(_each_of(f"{name}_backward", "grad_input") for name in _ACTIVATIONS.split()),
    *(TorchOp(f"{name}_backward", new=True) for name in ("hardswish", "mish")),
    *(TorchOp(name, new=True) for name in _SMOOTH.split()),
    TorchOp("hardswish"),
    TorchOp("glu", shape_rules.glu, slips=True, new=True),  # once only
    TorchOp("glu_backward", lambda _, x, *__: x, new=True),
    TorchOp("softmax", stem="p", new=True, over="out"),
    TorchOp("log_softmax", stem="logp", new=True, over="out"),
    TorchOp("_softmax_of", stem="p", new=True),
    TorchOp("_logsoftmax", stem="logp", new=True),
    *(TorchOp(name, new=True) for name in ("_softmax_slope", "_logsoftmax_slope")),
    *(TorchOp(f"_{name}softmax_backward_data", new=True) for name in ("", "log_")),
    TorchOp("hardtanh", limited=True, new=True, over="out"),
    *(TorchOp(name, limited=True, new=True) for name in ("softshrink", "smooth_l1_loss")),
    TorchOp("huber_loss", limited=True, slips=True, new=True),  # once only
    TorchOp("hardsigmoid", slips=True, new=True),  # 1/6 in single precision
    TorchOp("math.prod", stem="size"),
    TorchOp(
        "_product_of_others", shape_rules.like, before=flop_rules.before_others, ends_in_view=True
    ),
    TorchOp(
        "_product_before", shape_rules.like, before=flop_rules.before_product, ends_in_view=True
    ),
    TorchOp("_recurrence", shape_rules.like, flop_rules.recurrence, ends_in_view=True),
    TorchOp(
        "_decayed_sum",
        shape_rules.like,
        flop_rules.recurrence,
        before=flop_rules.before_decay,
        ends_in_view=True,
    ),
)

_MONOTONE = (
    "_where abs amax amin clamp clamp_max clamp_min hardtanh hardtanh_backward max max_pool1d "
    "max_pool2d max_pool3d maximum min minimum relu threshold_backward where"
)
_EXACT = "all any argmax argmin ceil floor frac round sign trunc"
_ONCE = (
    "_class_loss _class_loss_slope _log_softmax_backward_data _logsoftmax_slope "
    "_softmax_backward_data _softmax_of _softmax_slope acos asin atan atan2 avg_pool1d avg_pool2d "
    "celu cos cosh elu elu_backward exp expm1 gelu gelu_backward glu hardsigmoid hardswish "
    "hardswish_backward leaky_relu leaky_relu_backward log log1p logsigmoid mean mish "
    "mish_backward reciprocal selu sigmoid silu silu_backward sin sinh softmax softplus sqrt "
    "square sum sum_to_size tan tanh vector_norm"
)
_HALF = {
    name: half
    for half, names in ((MONOTONE, _MONOTONE), (EXACT_ALONE, _EXACT), (ONCE, _ONCE))
    for name in names.split()
}
_COMPARES = {
    "where": (0,),
    "_where": (0,),
    "threshold_backward": (1, 2),
    "hardtanh_backward": (1, 2, 3),
}


def _in_half(row: TorchOp) -> TorchOp:
    """Return the row with its properties in half precision."""
    in_float32 = row.name == "hardtanh_backward"
    compares = _COMPARES.get(row.name, ())
    return replace(row, half=_HALF.get(row.name, ""), compares=compares, in_float32=in_float32)


TORCH_OPS: Mapping[str, TorchOp] = {row.name: _in_half(row) for row in _ROWS}
_CAST = _view("to", shape_rules.like, reshaped=True)
"""A cast to the dtype of the body: free if the tensors have it already."""
MATMUL = TorchOp("@", shape_rules.matmul, flop_rules.matmul, contracts=True, new=True)
ELEMENTWISE = TorchOp("")
_POWER = TorchOp("pow", slips=True)
"""A non-integer exponent p: x**(p - 2) is infinite at 0 for p = 1.25."""

ADDED_PRODUCTS = {2: "torch.addmm", 3: "torch.baddbmm"}
"""The call for C + c*(A @ B), by the number of axes."""


def torch_op(code: Code) -> TorchOp:
    """Return the row of the operation that the code calls."""
    match code:
        case MethodCall(_, "to", (Name("low" | "wide" | "dtype"),)):
            return _CAST
        case Binary("@"):
            return MATMUL
        case Binary("**", _, exponent) if not _is_integer_literal(exponent):
            return _POWER
        case MethodCall(_, name):
            return TORCH_OPS.get(name, ELEMENTWISE)
        case FunctionCall(name) if name.startswith("torch."):
            return TORCH_OPS.get(name.rpartition(".")[2], ELEMENTWISE)
        case FunctionCall(name) if name not in ("min", "max"):
            return TORCH_OPS.get(name, ELEMENTWISE)
    return ELEMENTWISE


def _is_integer_literal(code: Code) -> bool:
    """True if the code is a nonnegative integer literal."""
    return isinstance(code, Literal) and code.text.isdigit()


def has_forward_mode(codes: Iterable[Code]) -> bool:
    """True if torch's own forward mode of this code is right everywhere."""
    return not any(torch_op(part).slips for code in codes for part in subexpressions(code))


def moves(code: Code) -> bool:
    """True if the code has elements of one tensor, at other positions."""
    op = torch_op(code)
    return (
        isinstance(code, MethodCall)
        and op.flops is flop_rules.none
        and not (op.makes or op is ELEMENTWISE)
    )


_FLOAT32 = frozenset(
    "acos asin cosh cumprod cumsum erfinv exp exp2 expm1 log log10 log1p log2 log_softmax "
    "logcumsumexp logsumexp norm pow prod rsqrt sinh softmax softplus sum tan vector_norm".split()
)
"""Functions that autocast computes in float32; so is a mean of all elements, as in a loss."""


def is_float32_under_autocast(code: Code) -> bool:
    """True if torch's autocast computes the code in float32."""
    match code:
        case Binary("**") | MethodCall(_, "mean", ()):
            return True
        case MethodCall(_, name):
            return name in _FLOAT32
        case FunctionCall(name) if name.startswith("torch."):
            return name.rpartition(".")[2] in _FLOAT32
        case FunctionCall() if torch_op(code).several:
            return True
    return False


def count(codes: Iterable[Code]) -> tuple[int, int]:
    """Return (elementwise operations and reductions, matrix products and einsums) in the code."""
    operations = contractions = 0
    pending = list(codes)
    while pending:
        code = pending.pop()
        pending += code.parts()
        match code:
            case Binary("@"):
                contractions += 1
            case Binary(op) if op != "or":
                operations += 1
            case Unary("-" | "~"):
                operations += 1
            case FunctionCall() if torch_op(code).flops in (flop_rules.einsum, flop_rules.addmm):
                contractions += 1
            case FunctionCall() | MethodCall() if not torch_op(code).free:
                operations += 1
    return operations, contractions
