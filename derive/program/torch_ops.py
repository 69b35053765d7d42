"""The torch operations of generated code, as a table.

All properties of an operation are in its row of `TORCH_OPS`; an operation without a row is
elementwise. Only the choice of operations is elsewhere: in the lowering.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from enum import Enum, auto
from functools import lru_cache
from typing import Any

from derive.algebra.poly import ONE
from derive.notation.operation import Kind
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


class Alias(Enum):
    """The operands with which a result may share memory, apart from tensors without elements."""

    ANY = auto()
    """Any operand, as far as is known."""
    SAME = auto()
    """The first operand: it is the result, or is copied."""
    RESHAPED = auto()
    """The first operand: the result is a view of each element once, or a copy."""
    VIEW = auto()
    """The first operand: the result is a view of some elements, or a copy."""
    OVERLAPPING = auto()
    """The first operand: a view, in which one element may appear at several positions."""
    FRESH = auto()
    """None."""
    FRESH_VIEW = auto()
    """None: a view of a new tensor, for autograd."""
    SEVERAL = auto()
    """None: a tuple of new tensors; ``shape`` returns their shapes."""


@dataclass(frozen=True)
class TorchOp:
    """name(x, ...) or x.name(...): its shape rule, its cost and its properties.

    A ``view`` computes nothing. ``free`` operations are not counted, and ``light`` ones are
    repeated rather than named. One that ``makes`` a tensor reads no elements. One that
    ``contracts`` sums products, and one that ``keeps`` has an argument keepdim. One
    ``at_positions`` raises an error for a position out of range, a ``limited`` one for some
    numbers. One that ``slips`` has a forward-mode rule that is somewhere wrong or not finite, or
    whose derivative is, although the tangent is finite. ``before`` returns the steps before the
    last.
    """

    name: str
    shape: Callable[..., Shape] | None = None
    """None: that of an elementwise operation, the shape to which the tensor arguments broadcast."""
    flops: Flops = flop_rules.per_result_element
    _: KW_ONLY
    alias: Alias = Alias.ANY
    results: int = 1
    view: bool = False
    free: bool = False
    light: bool = False
    makes: bool = False
    contracts: bool = False
    keeps: bool = False
    at_positions: bool = False
    limited: bool = False
    slips: bool = False
    fused: bool = False
    """No compiler generates code that is as fast."""
    exact: tuple[int, ...] = ()
    """Positions of arguments of a contraction that keep their dtype."""
    absent: tuple[tuple[int, int], ...] = ()
    """Positions of arguments that may be None, and the numbers that None represents."""
    before: Callable[..., Steps] = lambda *_, **__: ()
    half: str = ""
    """The relation of a half-precision result to float32: `MONOTONE`, `EXACT_ALONE` or `ONCE`.

    Operations that only move elements need none of these.
    """
    compares: tuple[int, ...] = ()
    """Positions of arguments that only decide the selection."""
    in_float32: bool = False
    """Its comparison does not round numbers to half precision."""
    kind: Kind | None = None
    """The kind of the result, if it is not that of the operands."""
    over: str = ""
    """How to write the result over the first operand, of the same shape.

    "_" means the in-place method ``name_``; any other value is the keyword of the output tensor.
    """

    @property
    def several(self) -> bool:
        """True if it returns a tuple."""
        return self.alias is Alias.SEVERAL


def _fresh(name: str, *columns: Any, alias: Alias = Alias.FRESH, **named: Any) -> TorchOp:
    return TorchOp(name, *columns, alias=alias, **named)


def _view(
    name: str,
    shape: Callable[..., Shape],
    alias: Alias = Alias.VIEW,
    free: bool = True,
    **named: Any,
) -> TorchOp:
    return TorchOp(name, shape, flop_rules.none, alias=alias, view=True, free=free, **named)


def _moves(name: str, shape: Callable[..., Shape], **named: Any) -> TorchOp:
    """An operation without arithmetic."""
    return _fresh(name, shape, flop_rules.none, **named)


def _scans(name: str, alias: Alias, **named: Any) -> TorchOp:
    """A recurrence along an axis, or another map of its rows."""
    return TorchOp(name, shape_rules.like, alias=alias, **named)


def _picks(
    name: str, shape: Callable[..., Shape] = lambda x, at, index: index, **named: Any
) -> TorchOp:
    """A read at positions."""
    return _moves(name, shape, **{"at_positions": True, **named})


def _adds(name: str, source: int = 3, **named: Any) -> TorchOp:
    """A scatter that adds elements of a source to a tensor."""
    return _fresh(name, shape_rules.like, flop_rules.per_argument_element(source), **named)


def _attends(
    name: str, results: int, shape: Callable[..., Any], flops: Flops, exact: tuple[int, ...]
) -> TorchOp:
    """The last two exact arguments are the mask, which may be absent, and the scale."""
    given = {"contracts": True, "fused": True, "exact": exact, "absent": ((exact[-2], 0),)}
    return _fresh(name, shape, flops, alias=Alias.SEVERAL, results=results, **given)


def _reduces(name: str, **named: Any) -> TorchOp:
    given = name, shape_rules.reduce, flop_rules.per_argument_element(0)
    return _fresh(*given, keeps=True, **named)


def _multi_result(name: str, shape: Callable[..., Any], *absent: tuple[int, int]) -> TorchOp:
    (weight, _), *_ = absent

    def before(*args: Any, **named: Any) -> Steps:
        """Yield the product of the weight and a number, if both are given."""
        if "share" in named and isinstance(args[weight], tuple):
            yield args[weight], elements(args[weight])

    given = name, shape, flop_rules.normalised
    return TorchOp(*given, alias=Alias.SEVERAL, results=3, absent=absent, before=before)


def _each_of(name: str, over: str = "_") -> TorchOp:
    """An elementwise operation."""
    return _fresh(name, over=over)


def _window_ops() -> Iterator[TorchOp]:
    """Yield the operations that exist for one, two and three axes of windows."""
    conv = shape_rules.conv, flop_rules.conv
    conv_input = shape_rules.like, flop_rules.conv_gradient
    conv_weight = shape_rules.like_second, flop_rules.conv_gradient
    conv_transpose = shape_rules.conv_transpose, flop_rules.conv_transpose
    for name, rules in (
        ("rt.conv_single_channel", conv),
        ("rt.conv_single_channel_input", conv_input),
    ):
        yield TorchOp(name, *rules, contracts=True, alias=Alias.FRESH_VIEW)
    for n in (1, 2, 3):
        yield _fresh(f"conv{n}d", *conv, contracts=True, absent=((2, 0),))
        yield _fresh(f"conv{n}d_input", *conv_input, contracts=True)
        yield _fresh(f"conv{n}d_weight", *conv_weight, contracts=True)
        yield _fresh(f"conv_transpose{n}d", *conv_transpose, contracts=True, absent=((2, 0),))
        alias = Alias.FRESH_VIEW if n == 1 else Alias.FRESH
        for name in (f"avg_pool{n}d", f"max_pool{n}d"):
            yield TorchOp(name, shape_rules.pool(n), flop_rules.pool(n), alias=alias)
        if n > 1:
            backward = shape_rules.like_second, flop_rules.spread(n)
            yield _fresh(f"avg_pool{n}d_backward", *backward)


_FUNCTIONS = (
    "abs acos acosh asin asinh atan atanh ceil clamp clamp_max clamp_min cos cosh digamma erf erfc "
    "exp expm1 floor frac lgamma log log1p reciprocal relu round rsqrt sigmoid sign sin sinh sqrt "
    "square tan tanh trunc"
)
_READS = "rt.read_at", "rt.read_at_if_any"
_IF_ANY = "rt.index_add_if_any", "rt.scatter_add_if_any"
_INSIDE = "rt.index_add_inside", "rt.scatter_add_inside"
_AT: Mapping[str, Any] = {"at_positions": True, "over": "_"}
_ACTIVATIONS = "elu gelu hardshrink hardtanh leaky_relu sigmoid silu tanh threshold"
_SMOOTH = "celu elu gelu hardtanh leaky_relu logsigmoid mish selu silu softplus"
_OTHERS = "addcmul hardshrink masked_fill pow threshold rt.addmm"

_ROWS = (
    _view("unsqueeze", shape_rules.unsqueeze, light=True, alias=Alias.RESHAPED),
    _view("squeeze", shape_rules.squeeze, light=True, alias=Alias.RESHAPED),
    _view("expand", shape_rules.expand, light=True, alias=Alias.OVERLAPPING),
    _view("select", shape_rules.squeeze, light=True, at_positions=True),
    _view("rt.unsqueeze", lambda x, axes: (*x, *[ONE] * len(axes)), Alias.SAME, light=True),
    _view("transpose", shape_rules.transpose, light=True, alias=Alias.RESHAPED),
    _view("permute", shape_rules.permute, light=True, alias=Alias.RESHAPED),
    _view("movedim", shape_rules.movedim, light=True, alias=Alias.RESHAPED),
    _view("diagonal", shape_rules.diagonal),
    _view("reshape", shape_rules.reshape, alias=Alias.RESHAPED),
    _view("flatten", shape_rules.flatten, alias=Alias.RESHAPED),
    _view("unflatten", shape_rules.unflatten, alias=Alias.RESHAPED),
    _view("rt.flatten", shape_rules.flatten, alias=Alias.RESHAPED),
    _view("rt.unflatten", shape_rules.unflatten, alias=Alias.RESHAPED),
    _view("narrow", shape_rules.narrow, free=False, at_positions=True),
    _view("rt.narrow", shape_rules.narrow, free=False, at_positions=True),
    _moves("rt.window", shape_rules.narrow),
    _view("unfold", shape_rules.unfold, free=False, alias=Alias.OVERLAPPING),
    TorchOp("rt.windows", shape_rules.windows, flop_rules.none, alias=Alias.OVERLAPPING),
    _view("detach", shape_rules.like, free=False),
    _view("rt.no_view", shape_rules.like, Alias.SAME),
    TorchOp("rt.add_cotangent", shape_rules.like),
    TorchOp("rt.guarded", shape_rules.like, alias=Alias.SAME),
    _view("rt.copied", shape_rules.like, Alias.SAME, free=False),
    TorchOp("dim", free=True, light=True),
    _reduces("sum"),
    _reduces("mean"),
    _reduces("logsumexp", slips=True),  # nan where it is -inf
    _fresh("vector_norm", shape_rules.norm, flop_rules.per_argument_element(0), keeps=True),
    *map(_reduces, ("prod", "max", "min", "amax", "amin")),
    *(_reduces(name, kind="int") for name in ("argmax", "argmin")),
    *(_reduces(name, kind="bool") for name in ("any", "all")),
    _picks("_indexed", lambda x, at: (*at, *x[1:])),
    replace(_reduces("rt.sum_over"), alias=Alias.SAME),
    replace(_reduces("rt.mean_over"), alias=Alias.SAME),
    TorchOp(
        *("sum_to_size", shape_rules.expand, flop_rules.per_argument_element(0)),
        alias=Alias.RESHAPED,
    ),
    *map(_picks, ("gather", "rt.gather_if_any")),
    _picks("rt.gather", alias=Alias.FRESH_VIEW),
    _picks("rt.gather_inside", at_positions=False, alias=Alias.FRESH_VIEW),
    _picks("index_select", shape_rules.index_select),
    *(
        _picks(name, shape_rules.index_select, alias=Alias.FRESH_VIEW, at_positions=checked)
        for name, checked in (
            ("rt.index_select", True),
            ("rt.index_select_if_any", True),
            ("rt.index_select_inside", False),
        )
    ),
    *(_picks(name, shape_rules.read_at) for name in _READS),
    *(_moves(name, shape_rules.like) for name in ("flip", "roll")),
    *(_moves(name, shape_rules.like, over="_") for name in ("tril", "triu")),
    _moves("clone", shape_rules.like),
    _moves("to", shape_rules.like, alias=Alias.SAME),
    _moves("diag_embed", lambda x, *_: (*x, x[-1])),
    _moves("pad", shape_rules.pad, at_positions=True),
    _moves("cat", shape_rules.cat),
    _moves("stack", shape_rules.stack),
    _moves("rt.stack", shape_rules.stack),
    _fresh("where", None, flop_rules.none),
    _fresh("rt.where", None, flop_rules.none),
    _each_of("threshold_backward", "grad_input"),
    _moves("select_scatter", shape_rules.like),
    _moves("slice_scatter", shape_rules.like, at_positions=True),
    *(_adds(name, **_AT) for name in ("scatter_add", *_IF_ANY, "scatter_reduce", "index_add")),
    _adds("rt.index_add", **_AT),
    _adds("rt.scatter_add", alias=Alias.FRESH_VIEW, **_AT),
    *(_adds(name, alias=Alias.FRESH_VIEW) for name in _INSIDE),
    _adds("index_put", 2, **_AT),
    _moves("new_zeros", shape_rules.expand, makes=True),
    _moves("new_full", shape_rules.expand, makes=True),
    *(
        _moves(name, shape_rules.arange, makes=True, kind="int")
        for name in ("arange", "rt.positions")
    ),
    _moves("full", lambda *_, **__: (), makes=True),
    _fresh("einsum", shape_rules.einsum, flop_rules.einsum, contracts=True, alias=Alias.FRESH_VIEW),
    replace(
        _fresh("tensordot", shape_rules.tensordot, flop_rules.tensordot, contracts=True),
        exact=(2,),
        alias=Alias.FRESH_VIEW,
    ),
    replace(
        _fresh("linear", shape_rules.linear, flop_rules.matmul, contracts=True),
        absent=((2, 0),),
        alias=Alias.FRESH_VIEW,
    ),
    _fresh("addmm", shape_rules.addmm, flop_rules.addmm, contracts=True, over="out"),
    _fresh("baddbmm", shape_rules.addmm, flop_rules.addmm, contracts=True, over="out"),
    *_window_ops(),
    _multi_result("rt.native_layer_norm", shape_rules.rows_normalised, (2, 1), (3, 0)),
    _multi_result("rt.native_batch_norm", shape_rules.normalised(1, 2), (1, 1), (2, 0)),
    _multi_result("rt.native_group_norm", shape_rules.normalised(0, 2), (1, 1), (2, 0)),
    _multi_result("rt.native_instance_norm", shape_rules.normalised(0, 2), (1, 1), (2, 0)),
    _multi_result(
        "rt.native_layer_norm_backward", lambda g, x, row, *_, **__: (x, row, row), (5, 1)
    ),
    _multi_result("rt.native_batch_norm_backward", shape_rules.normalised(1, 2), (4, 1)),
    _multi_result("rt.native_group_norm_backward", shape_rules.normalised(1, 3), (4, 1)),
    _multi_result("rt.native_instance_norm_backward", shape_rules.normalised(1, 2), (4, 1)),
    _attends("rt.attention", 2, shape_rules.attended, flop_rules.attended, (3, 4)),
    _attends(
        *("rt.attention_backward", 3, lambda _, q, k, v, *__: (q, k, v)),
        *(flop_rules.attended_gradients, (5, 6, 7)),
    ),
    _scans("cumsum", Alias.FRESH),
    # through exp(x - max x): 0 far below the maximum
    _scans("logcumsumexp", Alias.FRESH, slips=True),
    # a quotient at zeros, of which the second derivative is nan
    _scans("cumprod", Alias.FRESH, slips=True),
    _fresh("atan2", slips=True),  # nan at (0, 0)
    *(_each_of(name) for name in _FUNCTIONS.split()),
    *(_each_of(name, "out") for name in ("maximum", "minimum")),
    *(_each_of(f"{name}_backward", "grad_input") for name in _ACTIVATIONS.split()),
    *(_fresh(f"{name}_backward") for name in ("hardswish", "mish")),
    TorchOp("long", kind="int", alias=Alias.SAME),
    _fresh("isfinite", kind="bool"),
    *(_fresh(name) for name in f"{_SMOOTH} {_OTHERS}".split()),
    _fresh("hardswish"),
    _fresh("glu", shape_rules.glu, slips=True),  # once only
    _fresh("glu_backward", shape_rules.like_second),
    *(_scans(f"{name}softmax", Alias.FRESH, over="out") for name in ("", "log_")),
    *(_scans(f"rt.{name}softmax", Alias.FRESH_VIEW) for name in ("", "log_")),
    *(_scans(f"rt.{name}softmax_backward", Alias.FRESH_VIEW) for name in ("", "log_")),
    *(_scans(f"_{name}softmax_backward_data", Alias.FRESH) for name in ("", "log_")),
    _fresh("hardtanh", limited=True, over="out"),
    *(_fresh(name, limited=True) for name in ("softshrink", "smooth_l1_loss")),
    _fresh("huber_loss", limited=True, slips=True),  # once only
    _fresh("hardsigmoid", slips=True),  # 1/6 in single precision
    _scans("rt.exclusive_prod", Alias.FRESH_VIEW, before=flop_rules.before_others),
    _scans("rt.exclusive_cumprod", Alias.FRESH_VIEW, before=flop_rules.before_product, slips=True),
    # The last of equal elements has the tangent.
    *(_scans(f"rt.running_{name}", Alias.FRESH, slips=True) for name in ("max", "amax")),
    _scans("rt.running_argmax", Alias.FRESH_VIEW, kind="int"),
    *(
        _scans(f"rt.{name}_ranks", Alias.FRESH, kind="int", flops=flop_rules.sorting)
        for name in ("sort", "first")
    ),
    _fresh("rt.joined_positions", lambda _, *at: shape_rules.broadcast(*at), kind="int"),
    *(
        _fresh(name, *columns, alias=Alias.FRESH_VIEW, **named)
        for name, columns, named in (
            ("rt.any_where", (lambda _, __, t: t,), {"kind": "bool"}),
            ("rt.count_where", (lambda _, __, t: t, flop_rules.sorting), {"kind": "int"}),
            ("rt.sum_where", (shape_rules.sum_where, flop_rules.sorting), {}),
            ("rt.logsumexp_where", (shape_rules.sum_where, flop_rules.sorting), {"slips": True}),
            ("rt.mean_where", (shape_rules.mean_where, flop_rules.sorting), {"slips": True}),
            ("rt.mean_where_adjoint", (shape_rules.mean_where, flop_rules.sorting), {}),
        )
    ),
    _scans("rt.sum_while_equal", Alias.FRESH_VIEW, flops=flop_rules.recurrence),
    _scans("rt.linear_recurrence", Alias.RESHAPED, flops=flop_rules.recurrence),
    _fresh("rt.circular_convolution"),
    _fresh("rt.circular_correlation"),
    _scans("rt.adjoint_recurrence", Alias.RESHAPED, flops=flop_rules.recurrence),
    _scans(
        "rt.decayed_sum",
        Alias.RESHAPED,
        flops=flop_rules.recurrence,
        before=flop_rules.before_decay,
    ),
)

_MONOTONE = (
    "rt.where abs amax amin clamp clamp_max clamp_min hardtanh hardtanh_backward max max_pool1d "
    "max_pool2d max_pool3d maximum min minimum relu threshold_backward where"
)
_EXACT = "all any argmax argmin ceil floor frac round sign trunc"
_ONCE = (
    "_log_softmax_backward_data rt.log_softmax_backward "
    "_softmax_backward_data rt.softmax rt.softmax_backward acos asin atan atan2 avg_pool1d "
    "avg_pool2d celu cos cosh elu elu_backward exp expm1 gelu gelu_backward glu hardsigmoid "
    "hardswish hardswish_backward leaky_relu leaky_relu_backward log log1p logsigmoid mean mish "
    "mish_backward reciprocal rt.mean_over rt.sum_over selu sigmoid silu silu_backward sin sinh "
    "softmax softplus sqrt square sum sum_to_size tan tanh vector_norm"
)
_HALF = {
    name: half
    for half, names in ((MONOTONE, _MONOTONE), (EXACT_ALONE, _EXACT), (ONCE, _ONCE))
    for name in names.split()
}
_COMPARES = {
    "where": (0,),
    "rt.where": (0,),
    "threshold_backward": (1, 2),
    "hardtanh_backward": (1, 2, 3),
}


_SAID = {
    "{0}": "no_view add_cotangent copied clone dim",
    "{0}_squared": "square",
    "{0}_at": "select read_at read_at_if_any",
    "{0}_at_{2}": (
        "gather gather_if_any gather_inside index_select index_select_if_any index_select_inside"
    ),
    "{3}_by_{2}": (
        "scatter_add index_add scatter_add_if_any index_add_if_any scatter_add_inside "
        "index_add_inside"
    ),
    "extreme_{3}_by_{2}": "scatter_reduce",
    "{2}_placed": "index_put",
    "spread_{0}": "unsqueeze squeeze expand sum_to_size",
    "transposed_{0}": "transpose permute movedim",
    "reshaped_{0}": "reshape",
    "flat_{0}": "flatten",
    "split_{0}": "unflatten",
    "diagonal_of_{0}": "diagonal diag_embed",
    "part_of_{0}": "narrow window",
    "windows_of_{0}": "unfold windows",
    "detached_{0}": "detach",
    "flipped_{0}": "flip roll",
    "padded_{0}": "pad",
    "joined_{0}": "cat stack",
    "lower_{0}": "tril",
    "upper_{0}": "triu",
    "sum_of_{0}": "sum sum_over",
    "mean_of_{0}": "mean mean_over",
    "norm_of_{0}": "vector_norm",
    "product_of_{0}": "prod",
    "max_of_{0}": "max amax",
    "min_of_{0}": "min amin",
    "argmax_of_{0}": "argmax",
    "argmin_of_{0}": "argmin",
    "clamped_{0}": "clamp clamp_min clamp_max hardtanh",
    "masked_{0}": "threshold_backward keep_where masked_fill",
    "inverse_{0}": "reciprocal",
    "{0}_through_softmax": "softmax_backward softmax_backward_data",
    "{0}_through_log_softmax": "log_softmax_backward log_softmax_backward_data",
    "attended": "attention",
    "normed": "native_layer_norm native_batch_norm native_group_norm native_instance_norm",
    "grads": (
        "native_layer_norm_backward native_batch_norm_backward native_group_norm_backward "
        "native_instance_norm_backward attention_backward"
    ),
    "conv_of_{0}": "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d",
}
SAID = {name: said for said, names in _SAID.items() for name in names.split()}
"""What a value is, in the words of its arguments, by the bare name of the operation."""


def _in_half(row: TorchOp) -> TorchOp:
    """Return the row with its properties in half precision."""
    in_float32 = row.name == "hardtanh_backward"
    compares = _COMPARES.get(row.name, ())
    half = _HALF.get(row.name, "")
    return replace(row, half=half, compares=compares, in_float32=in_float32)


TORCH_OPS: Mapping[str, TorchOp] = {row.name: _in_half(row) for row in _ROWS}
_CAST = _view("to", shape_rules.like, Alias.SAME)
"""A cast to the dtype of the body: free if the tensors have it already."""
MATMUL = _fresh("@", shape_rules.matmul, flop_rules.matmul, contracts=True)
ELEMENTWISE = TorchOp("")
_POWER = _fresh("pow", slips=True)
"""A non-integer exponent p: x**(p - 2) is infinite at 0 for p = 1.25."""

ADDED_PRODUCTS = {2: "torch.addmm", 3: "torch.baddbmm"}
"""The call for C + c*(A @ B), by the number of axes."""


@lru_cache(maxsize=2**13)
def torch_op(code: Code) -> TorchOp:
    """Return the row of the operation that the code calls."""
    match code:
        case MethodCall(_, "to", (Name("low" | "wide" | "dtype"),)):
            return _CAST
        case Binary("@"):
            return MATMUL
        case Binary("**", _, exponent):
            whole = isinstance(exponent, Literal) and exponent.text.isdigit()
            return ELEMENTWISE if whole else _POWER
        case MethodCall(_, name):
            return TORCH_OPS.get(name, ELEMENTWISE)
        case FunctionCall(name) if name.startswith(("torch.", "reuse.")):
            return TORCH_OPS.get(name.rpartition(".")[2], ELEMENTWISE)
        case FunctionCall(name) if name not in ("min", "max"):
            return TORCH_OPS.get(name, ELEMENTWISE)
    return ELEMENTWISE


def has_forward_mode(codes: Iterable[Code]) -> bool:
    """True if torch's own forward mode of this code is right everywhere."""
    return not any(torch_op(part).slips for code in codes for part in subexpressions(code))


def moves(code: Code) -> bool:
    """True if the code has elements of one tensor, at other positions."""
    op = torch_op(code)
    first = isinstance(code, MethodCall) or op is TORCH_OPS["rt.index_select"]
    return first and op.flops is flop_rules.none and not (op.makes or op is ELEMENTWISE)


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
        case FunctionCall(name):
            circular = name in ("rt.circular_convolution", "rt.circular_correlation")
            return circular or torch_op(code).several
    return False


_PRODUCTS = flop_rules.einsum, flop_rules.addmm, flop_rules.matmul, flop_rules.tensordot


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
            case FunctionCall() if torch_op(code).flops in _PRODUCTS:
                contractions += 1
            case FunctionCall() | MethodCall() if not torch_op(code).free:
                operations += 1
    return operations, contractions
