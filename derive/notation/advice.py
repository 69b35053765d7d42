"""What people ask for that index notation does not say, and the nearest thing that it says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_ORDER = (
    "the order of values is no index expression: sort outside, with torch.sort or torch.topk, and "
    "pass the positions as an integer tensor T, read as x[T[k]]; max and argmax are in the notation"
)
_MASK = (
    "keep the axis and mask it, [m[k]]*x[k] or sum[k | m[k]](x[k]), or find the positions outside "
    "and pass them as an integer tensor T: x[T[k]]"
)
_DATA_SIZE = f"its size depends on the data, and every size here is that of an axis: {_MASK}"
_LOOP = (
    "the number of rounds depends on the data, and a spec is a fixed list of equations: make one "
    "round an operation and loop in Python, where autograd joins the rounds"
)
_RANDOM = "random numbers come from outside: pass them, or a mask drawn with torch, as an input"
_SOLVER = (
    "a decomposition of a matrix is no index expression: use torch.linalg, or write what follows "
    "from a factor that is passed as an input"
)
_CUMULATIVE = "a reduction up to one's own position has a condition: {}"

RECURRENCE = (
    "a recurrence is no equation: make one step an operation and loop in Python, or write a sum "
    "over the earlier positions, sum[s | s<=t](..)"
)

ADVICE: Mapping[str, str] = {
    **dict.fromkeys(("sort", "argsort", "topk", "kthvalue", "median", "quantile", "mode"), _ORDER),
    **dict.fromkeys(("rank", "msort", "unique_consecutive", "searchsorted"), _ORDER),
    **dict.fromkeys(("nonzero", "masked_select", "unique", "compress", "filter"), _DATA_SIZE),
    **dict.fromkeys(("bincount", "histogram"), "count with sum[n | T[n] == k](1)"),
    **dict.fromkeys(("scan", "fold", "while", "while_loop", "fori_loop", "iterate"), _LOOP),
    **dict.fromkeys(("rand", "randn", "random", "dropout", "bernoulli"), _RANDOM),
    **dict.fromkeys(("multinomial", "normal", "uniform"), _RANDOM),
    **dict.fromkeys(("inv", "inverse", "det", "slogdet", "solve", "cholesky", "qr"), _SOLVER),
    **dict.fromkeys(("logdet", "lu", "matrix_exp", "matrix_power"), _SOLVER),
    **dict.fromkeys(("svd", "eig", "eigh", "eigvals", "pinv", "lstsq", "expm"), _SOLVER),
    "cumsum": _CUMULATIVE.format("y[k] = sum[l | l<=k](x[l])"),
    "cumprod": _CUMULATIVE.format("y[k] = prod[l | l<=k](x[l])"),
    "cummax": _CUMULATIVE.format("y[k] = max[l | l<=k](x[l])"),
    "cummin": _CUMULATIVE.format("y[k] = min[l | l<=k](x[l])"),
    "logcumsumexp": _CUMULATIVE.format("y[k] = logsumexp[l | l<=k](x[l])"),
    "var": "write it: m = mean[k](x[k]), v = mean[k]((x[k] - m)**2)",
    "std": "write it: m = mean[k](x[k]), s = sqrt(mean[k]((x[k] - m)**2))",
    "norm": "write norm2[k](x[k]), or sum[k](abs(x[k]))",
    "einsum": "the notation is that itself: C[i,j] = sum[k](A[i,k]*B[k,j])",
    "matmul": "write it: C[i,j] = sum[k](A[i,k]*B[k,j])",
    "dot": "write it: sum[k](x[k]*y[k])",
    "transpose": "write it: y[j,i] = x[i,j]",
    "reshape": "axes are composed and taken apart in the notation: x[n,(t d)]",
    "one_hot": "write it: [T[n] == k]",
    "flip": "write it: x[size(k)-1-k]",
    "roll": "write it: where(k >= s, x[k-s], x[k-s+size(k)])",
    "gather": "write it: x[n,T[n,k]]",
    "scatter": "write it by where its values go: y[k] = sum[n | T[n] == k](x[n])",
    "scatter_add": "write it by where its values go: y[k] = sum[n | T[n] == k](x[n])",
    "index_add": "write it by where its values go: y[k] = sum[n | T[n] == k](x[n])",
    "stack": "write it with a size of 2: y[s,n] = where(s == 0, a[n], b[n])",
    "cat": "it is called concat: concat[k](a[k], b[k])",
    "conv1d": "write it: y[n,o,t] = sum[c,k](x[n,c,t+k]*w[o,c,k])",
    "conv2d": "write it: y[n,o,s,t] = sum[c,i,j](x[n,c,s+i,t+j]*w[o,c,i,j])",
    "gelu": "write it: x*(1 + erf(x/sqrt(2)))/2",
    "silu": "write it: x*sigmoid(x)",
    "swish": "write it: x*sigmoid(x)",
    "mish": "write it: x*tanh(softplus(x))",
    "elu": "write it: where(x > 0, x, exp(x) - 1)",
    **dict.fromkeys(("leaky_relu", "prelu"), "write it: where(x > 0, x, a*x)"),
    "relu6": "write it: clamp(x, 0, 6)",
    "hardtanh": "write it: clamp(x, -1, 1)",
    "hardsigmoid": "write it: clamp(x + 3, 0, 6)/6",
    **dict.fromkeys(("hardswish", "hard_swish"), "write it: x*clamp(x + 3, 0, 6)/6"),
    "softsign": "write it: x/(1 + abs(x))",
    "ceil": "write it: -floor(-x)",
    "round": "write it: floor(x + 1/2), which takes 2.5 to 3 (torch.round takes it to 2)",
    "trunc": "write it: sign(x)*floor(abs(x))",
    **dict.fromkeys(("mod", "fmod", "remainder"), "write it: x % m, which has the sign of m"),
    "gamma": "write it: exp(lgamma(x)), which is right for x > 0",
    "pow": "write it: x**y",
    "cbrt": "write it: sign(x)*abs(x)**(1/3)",
    "trace": "write it: y = sum[i](x[i,i])",
    "diag": "write it: y[i] = x[i,i]",
    "complex": "complex numbers are not supported: write the real and the imaginary part",
    "conj": "complex numbers are not supported: write the real and the imaginary part",
    "fft": "complex numbers are not supported: write the sums of cosines and sines",
}
"""What stands in an error about a word of this name."""

KEYWORDS: Mapping[str, str] = {
    "while": _LOOP,
    "for": "an equation holds for every value of its indices, no loop is written: y[t] = 2*x[t]",
    "if": "a choice between values is where(condition, a, b); of what is given, a parameter with "
    "options: reduction=mean|sum",
    "else": "a choice between values is where(condition, a, b)",
    "def": "an operation begins with op name(inputs) -> outputs",
    "return": "outputs are named on the op line: op name(inputs) -> outputs",
    "lambda": "an operation begins with op name(inputs) -> outputs",
}
"""What stands in an error about a statement with this word of Python's."""

SIGNS: Mapping[str, str] = {
    "@": "a product of matrices is sum[k](A[i,k]*B[k,j])",
    ".": "tensors have no attributes and no ellipsis: each axis is read by an index, x[j,i] for a "
    "transpose, and any number of axes by a group, x[*p,k]",
    ":": "an axis is read by an index that the left side has or that is summed, x[i,k], and a part "
    "of it too, x[i,k+1]",
}
"""What stands in an error about a sign of Python's."""


CONTINUED = (
    "a statement ends with its line: one that goes on in the next stands in parentheses, y = (a + "
    "b), which may be broken anywhere"
)
"""What is said of a line that ends or begins with an operator."""

LISTED = (
    "values are not listed: give the axis an index, y[i,j] = where(i == 0, a[j], b[j]) with "
    "size(i)=2 on the op line, or join what has an axis, concat[i](a[i], b[i])"
)
"""What is said of ``[[a, b], [c, d]]``."""

_COMPONENTS = (
    "the components of a tensor are given by one equation, y[k] = where(k == 0, a, b), and their "
    "number by {}"
)

RESULT = "the result of {} has no positions: give it an equation, S[i,j] = ..., and read S[i,j]"
"""What is said of ``f(x)[i]``."""


INFINITE = (
    "inf stands only in a comparison, as a bound of clamp, or as the branch that max, min, "
    "logsumexp or softmax leaves out, max[k](where(c, x, -inf)); elsewhere a condition says what "
    "is left out, [c]*x or max[k | c](x)"
)
"""What is said of an infinity that would be computed with."""


@dataclass(frozen=True)
class Declaring:
    """How one form of spec declares the axes of an input, a size, and an integer tensor."""

    axes: str
    sized: str
    whole: str

    def size(self, letter: str, value: str = "...") -> str:
        """The size of an index, given."""
        return self.sized.format(letter, value)

    def components(self) -> str:
        """What is said of ``y[0] = a; y[1] = b``."""
        return _COMPONENTS.format(self.size("k", "2"))

    def integer(self, tensor: str) -> str:
        """The tensor as one of integers."""
        return self.whole.format(tensor)


IN_TEXT = Declaring("on the op line", "size({})={}", "{}: int")
IN_SYMPY = Declaring(
    "in inputs=[x[i, j], ...]",
    "parameters={{size({}): {}}}",
    "inputs=[..., integer({})]",
)


def no_number(condition: str, is_position: bool) -> str:
    """What is said of a condition where a number is meant, or a position."""
    if is_position:
        return f"{condition} is a condition, which picks as many as the data say: {_MASK}"
    return f"{condition} is a condition and no number; write [{condition}]"
