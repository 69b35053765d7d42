"""The torch functions that generated code calls, and those of which the engine has no row."""

from collections.abc import Iterable

from derive import pipeline
from derive.algebra.functions import FUNCTIONS
from derive.kernels.table import KERNELS
from derive.notation.operation import Operation
from derive.program.torch_ir import FunctionCall, MethodCall, subexpressions
from derive.program.torch_ops import TORCH_OPS

ELEMENTWISE = {f.torch.rpartition(".")[2] for f in FUNCTIONS.values()} | {
    *("square", "rsqrt", "sqrt", "clamp_min", "pow", "softmax", "log_softmax"),
    *("cumsum", "cumprod", "logcumsumexp", "isfinite"),
    *("threshold", "hardtanh"),
}
OF_PYTHON = {"len", "range", "tuple", "prod", "finfo", "sqrt"}
OF_PYTHON |= {"ieee_call", "ieee_divide", "nonnegative"}


def unknown_calls(ops: Iterable[Operation]) -> set[str]:
    """What has no row in TORCH_OPS, and is not known to be elementwise."""
    called = set()
    for op in ops:
        for option, _ in pipeline.options(op):
            program = pipeline.program_of(op, option)
            for line in (*program.forward, *(program.first_order or program.backward)):
                for code in subexpressions(line.code):
                    if isinstance(code, FunctionCall | MethodCall):
                        called.add(code.name.rpartition(".")[2])
    called -= {row.code({}).name.rpartition(".")[2] for row in KERNELS.values()}
    return called - {name.removeprefix("rt.") for name in TORCH_OPS} - ELEMENTWISE - OF_PYTHON
