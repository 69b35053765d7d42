"""Optional tensors that are None: none of the constant's size is made, saved or differentiated."""

import warnings
from collections import Counter
from itertools import product

import pytest
import torch
from kit.each import each_row
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode

import derive
from derive import catalog
from derive.check.invoke import tensors_of
from derive.check.samples import cases, sample
from derive.errors import DeriveWarning

SPECS = {
    "outer": "op f(x[i], z[j], w[j]=1) -> y\ny[i,j] = x[i]*w[j] + 0*z[j]",
    "contracted": "op f(x[i,j], w[j]=1) -> y\ny[i] = sum[j](w[j]*sin(x[i,j]))",
    "first": "op f(w[i]=1, x[i,j], v[j]=0) -> y\ny[i,j] = w[i]*x[i,j] + v[j]",
    "other numbers": "op f(x[i,j], w[j]=3/2, b[i]=-2) -> y\ny[i,j] = w[j]*x[i,j]**2 - b[i]",
    "bent": "op f(x[i,j], w[j]=2) -> y\ny[i,j] = x[i,j]*exp(w[j])",
    "matrix": "op f(x[i,j], z[k,j], W[j,k]=1) -> y\ny[i,k] = sum[j](x[i,j]*W[j,k]) + z[k,0]",
    "averaged": "op f(x[i,j], w[j]=1) -> y\ny[i,j] = x[i,j]*w[j]/mean[j](w[j])",
    "product of two": "op f(x[i,j], a[j]=1, b[j]=1) -> y\ny[i,j] = a[j]*b[j]*x[i,j]**2",
    "sum of two": "op f(x[i,j], a[j]=0, b[j]=0) -> y\ny[i,j] = sin(a[j] + b[j] + x[i,j])",
    "group": "op f(x[*p,j], w[*p]=1, v[j]=0) -> y\ny[*p,j] = exp(w[*p]*x[*p,j]) + v[j]",
    "composite": """op f(x[n,(t d)], b[(t d)]=0; parts=size(t, 2)) -> y
y[n,t,d] = x[n,(t d)] + b[(t d)]""",
    "a factor of an addend": """op f(x[i,j], z[j], v[i]=0, w[i]=1) -> y
y[i,j] = w[i]*(x[i,j] + v[i]*z[j])""",
    "segments": "op f(x[i,j], T[n], w[i]=1) -> y\ny[i,j] = x[i,j]*sum[n | T[n]==i](w[T[n]])",
    "outputs": "op f(x[i,j], w[j]=2) -> y, u\nu[j] = w[j]\ny[i,j] = x[i,j]*u[j]",
    "branch": "op f(x[i], m[i]: bool, w[i]=3) -> y\ny[i] = where(m[i], x[i]**2, w[i])",
    "compared integers": "op f(v[k], r[n], t[k]: int=0) -> y\n"
    "y[n] = sum[k | t[k] == n](minimum(logsigmoid(t[k]), sin(v[k])))*r[n]",
    "extremum": "op f(v[k], a=0, b=0) -> y, u\ny = max[k](a*v[k])\nu = b**2",
    "counted": "op f(x[i], m[i]: bool, w[i]=1) -> y\ny[i] = x[i]*w[i]/sum[i](where(m[i], w[i], 0))",
    "numbered": "op f(v[l], x1[l]=0, t[k]: int) -> y\ny[n] = mean[k](x1[2*n + 2*k]*t[k]) + 0*v[0]",
    "positions": "op f(x[i], T[i]: int=1) -> y\ny[i] = x[i]*T[i] + x[T[i]]",
    "compared": "op f(x[i], T[i]=1) -> y\ny[i] = sum[k | T[k] == i](x[k]**2)",
    "mask": "op f(x[i,j], m[j]: bool=1) -> y\ny[i] = logsumexp[j | m[j]](x[i,j])",
    "of a group": """op f(x[*b,k], T[*b]: int=1, m[k]: bool=0, w[k]=1) -> y
y[*b] = where(m[T[*b]], x[*b,T[*b]]**2, sum[k | k <= T[*b]](w[k]*x[*b,k]))""",
    "saved": """op f(x[j], T[j]: int, w[j]=1) -> y
e[k] = w[k]*sum[c | T[c] == c](x[c])
y[n] = concat[n](e[0]/x[n], T[n])""",
    "axis within groups": """op f(x[*p,j,*q], w[*p,k,j,*q]=1, v[k]; dim=axis(j)) -> y
y[*p,j,*q] = x[*p,j,*q]*sum[k](w[*p,k,j,*q]*v[k])""",
    "names of the code": "op f(input[i], size[i]=1, G[i]=0) -> y\ny[i] = size[i]*input[i] + G[i]",
}
"""Where a constant is a factor, an addend, a number, a tensor after all."""

_MADE = ("new_full", "full", "ones", "full_like", "ones_like", "new_ones")


KERNELS = {"batch_norm": 2, "instance_norm": 1, "group_norm": 1}
"""Constants that a kernel takes in place of weight, with a number for each channel.

They are the roots of a share other than 1 (batch norm) and the weight without which torch's kernel
fails if it gives the gradient of bias. Without them there is one more pass over the whole input.
"""


class _Constants(TorchDispatchMode):
    """The sizes of the constants that are made."""

    def __init__(self):
        super().__init__()
        self.sizes = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ in _MADE and made.numel() > 1:
            self.sizes[tuple(made.shape)] += 1
        return made


def constants(op, tensors):
    """The constants that None stands for, by name."""
    numbers = {t.name: float(t.default) for t in op.inputs if t.default is not None}
    return {
        name: torch.full_like(tensors[name], number, requires_grad=False)
        for name, number in numbers.items()
    }


def pulled(function, tensors, parameters):
    """Outputs and gradients, what is saved and which constants are made."""
    saved = []
    with _Constants() as made, saved_tensors_hooks(lambda x: (saved.append(x), x)[1], lambda x: x):
        outputs = function(*tensors, **parameters)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        wanted = [x for x in tensors if x is not None and x.requires_grad]
        total = sum((y * torch.linspace(1, 2, y.numel()).view(y.shape)).sum() for y in outputs)
        found = torch.autograd.grad(total, wanted, allow_unused=True, materialize_grads=True)
    return outputs, found, saved, made.sizes


def combinations(op):
    """(function, tensors by name, parameters, the names that are None), for all of these."""
    function = derive.load(op)
    for case in cases(op):
        if case.label == "typical":
            made = sample(op, case)
            optional = [t.name for t in op.inputs if t.default is not None]
            for absent in product((False, True), repeat=len(optional)):
                names = {n for n, gone in zip(optional, absent, strict=True) if gone}
                yield function, tensors_of(made), made.parameters, names


def compared(op):
    """Every choice of tensors that are None, against the constants that they stand for."""
    for function, tensors, parameters, names in combinations(op):
        full = {**tensors, **{n: c for n, c in constants(op, tensors).items() if n in names}}
        none = {name: None if name in names else x for name, x in tensors.items()}
        got, want = (pulled(function, x.values(), parameters) for x in (none, full))
        torch.testing.assert_close((*got[0], *got[1]), (*want[0], *want[1]), rtol=1e-10, atol=1e-12)
        kept = [x for x in want[2] if not any(x is full[n] for n in names)]
        assert len(got[2]) <= len(kept)
        made, of_weight = got[3] - want[3], "weight" in names and full["weight"].shape
        assert made.total() <= KERNELS.get(op.name, 0) and set(made) <= {of_weight}


@each_row("name", SPECS)
def test_none_is_the_constant(name):
    compared(derive.parse(SPECS[name]))


@pytest.mark.parametrize("name", ["layer_norm", "binary_cross_entropy_with_logits"])
def test_none_is_the_constant_in_the_catalog(name):
    compared(catalog.find(name))


@pytest.mark.long
@pytest.mark.parametrize("name", catalog.names())
def test_none_is_the_constant_in_all_of_the_catalog(name):
    op = catalog.find(name)
    if any(t.default is not None for t in op.inputs):
        compared(op)


def test_what_both_branches_of_a_choice_compute_is_written_once():
    code = derive.source(catalog.find("cross_entropy"))
    forward = code.partition("def forward(")[2].partition("def setup_context")[0]
    assert "if weight is None" in forward and forward.count("gather(") == 1


def test_a_gradient_that_another_reads_is_left_out_by_one_line():
    op = derive.parse("op f(x[n,j], b[j]=0, c[j]=0) -> y\ny[n,j] = x[n,j] + b[j] + c[j]")
    assert "\n        grad_b = grad_b if ctx.needs_input_grad[1] else None" in derive.source(op)


ATTENTION = """op f(q[i,d], k[j,d], v[j,e], bias[i,j]=0, gain[e]=1) -> y
S[i,j] = sum[d](q[i,d]*k[j,d]) + bias[i,j]
P[i,j] = exp(S[i,j]) / sum[j](exp(S[i,j]))
y[i,e] = gain[e]*sum[j](P[i,j]*v[j,e])"""


def attention(dtype=torch.float64):
    torch.manual_seed(0)
    shapes = {"q": (2, 3), "k": (4, 3), "v": (4, 5), "bias": (2, 4), "gain": (5,)}
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes.values()]


@pytest.mark.parametrize("absent", list(product((False, True), repeat=2)))
def test_higher_derivatives_and_transforms_take_none(absent):
    function = derive.load(derive.parse(ATTENTION))
    *required, bias, gain = attention()
    rest = [None if gone else x for x, gone in zip((bias, gain), absent, strict=True)]
    numbers = (torch.zeros_like(bias), torch.ones_like(gain))
    full = [n if r is None else r for r, n in zip(rest, numbers, strict=True)]
    given = [x for x in rest if x is not None]

    def called(*tensors):
        left = list(tensors[3:])
        return function(*tensors[:3], *(None if r is None else left.pop(0) for r in rest))

    assert torch.autograd.gradcheck(called, (*required, *given), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(called, (*required, *given))
    q = torch.stack([required[0], 2 * required[0]]).detach()
    args = [x.detach() for x in required[1:]]
    others = [None if r is None else r.detach() for r in rest]
    full = [x.detach() for x in full]

    def total(q, *more):
        return function(q, *args, *more).sin().sum()

    for f in (torch.func.grad(total), torch.func.hessian(total)):
        got = torch.func.vmap(lambda q, f=f: f(q, *others))(q)
        want = torch.stack([f(row, *full) for row in q])
        torch.testing.assert_close(got, want)


def test_the_dtypes_of_a_result_do_not_count_what_is_none():
    function = derive.load(derive.parse(ATTENTION))
    q, k, v, bias, gain = attention(torch.bfloat16)
    assert function(q, k, v).dtype == torch.bfloat16
    assert function(q, k, v, bias.float()).dtype == torch.float32
    assert function(q, k, v, None, gain.double()).dtype == torch.float64
    with torch.autocast("cpu", torch.bfloat16):
        y = function(q.float(), k.float(), v.float(), None, gain)
    y.float().sum().backward()
    assert all(x.grad is not None and x.grad.dtype == x.dtype for x in (q, k, v, gain))
    assert bias.grad is None


def test_a_tensor_that_may_be_none_is_checked_where_it_is_given():
    function = derive.load(derive.parse(ATTENTION))
    q, k, v, bias, gain = attention()
    with pytest.raises(ValueError, match="bias must have 2 axes"):
        function(q, k, v, gain)
    with pytest.raises(ValueError, match="size 5 on axis 1 of v but 4 on axis 0 of gain"):
        function(q, k, v, None, bias[0])
    with pytest.raises(TypeError, match="gain must be a tensor, not float"):
        function(q, k, v, bias, 1.0)
    with pytest.raises(TypeError, match="q must be a tensor, not NoneType"):
        function(None, k, v)


def test_value_and_grad_takes_none_as_the_constant():
    step = derive.value_and_grad(derive.parse(ATTENTION))
    q, k, v, bias, gain = (x.detach() for x in attention())
    G = torch.randn(2, 5, dtype=torch.float64)
    with _Constants() as made:
        y, found = step(q, k, v, None, None, G=G)
    assert not made.sizes
    want, gradients = step(q, k, v, torch.zeros_like(bias), torch.ones_like(gain), G=G)
    torch.testing.assert_close(y, want)
    torch.testing.assert_close(found, gradients)


@pytest.mark.long
@pytest.mark.parametrize("absent", list(product((False, True), repeat=2)))
def test_none_is_compiled_and_exported(absent):
    function = derive.load(derive.parse(ATTENTION))
    *required, bias, gain = attention(torch.float32)
    rest = [None if gone else x for x, gone in zip((bias, gain), absent, strict=True)]
    given = [*required, *(x for x in rest if x is not None)]
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got, want = (f(*required, *rest) for f in (compiled, function))
    torch.testing.assert_close(got, want)
    gradients = (torch.autograd.grad(y.sin().sum(), given) for y in (got, want))
    torch.testing.assert_close(*gradients)

    class Module(torch.nn.Module):
        def forward(self, q, k, v):
            return function(q, k, v, *(None if x is None else x.detach() for x in rest))

    detached = tuple(x.detach() for x in required)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exported = torch.export.export(Module(), detached).module()
    torch.testing.assert_close(exported(*detached), want)


def test_an_extremum_with_its_position_has_no_shape():
    op = derive.parse(
        "op f(v[l], w[i], u[j], X[i,l]=0.5) -> y\n"
        "y[i,l] = max[i,d](sum[j | d <= j](X[i,l]))*atan(X[i,l])*v[l]*w[i]*u[0]"
    )
    y = derive.load(op)(torch.randn(3), torch.randn(4), torch.randn(5), None)
    assert y.shape == (4, 3)


ITSELF = {
    "a factor of 1": "op f(x[l], w[l]=1) -> y\ny[l] = x[l]*w[l]",
    "an addend of 0": "op f(x[l], b[l]=0) -> y\ny[l] = x[l] + b[l]",
    "what is saved": "op f(x[l], w[l]=1) -> y, z\ny[l] = x[l]*w[l]\nz = sum[l](x[l]**3)",
    "two of one": """op f(x[l], w[l]=1, v[l]=1) -> y, z
y[l] = sin(x[l])*w[l]
z[l] = sin(x[l])*v[l]""",
    "a view": "op f(x[i,j], w[i]=1) -> y, z\ny[j,i] = x[i,j]*w[i]\nz[i] = sum[j](x[i,j]**2)",
}


@pytest.mark.parametrize("text", ITSELF.values(), ids=ITSELF)
def test_an_output_that_is_an_input_without_a_tensor_has_its_own_memory(text):
    op = derive.parse(text)
    f = derive.load(op)
    x = torch.randn((3, 4)[-len(op.inputs[0].axes) :], dtype=torch.float64, requires_grad=True)
    before = x.detach().clone()
    first, *others = made if isinstance(made := f(x), tuple) else (made,)
    kept = [y.detach().clone() for y in others]
    first.mul_(2)
    torch.testing.assert_close(x.detach(), before, rtol=0, atol=0)
    torch.testing.assert_close([y.detach() for y in others], kept, rtol=0, atol=0)
    (gradient,) = torch.autograd.grad(first.sum(), x)
    constants = [torch.full(x.shape[: len(t.axes)], float(t.default)) for t in op.inputs[1:]]
    given = f(x, *(c.double() for c in constants))
    (want,) = torch.autograd.grad(2 * (given[0] if others else given).sum(), x)
    torch.testing.assert_close(gradient, want)


def test_a_number_is_divided_by_the_size_of_an_empty_axis():
    x = torch.zeros(0, 0, requires_grad=True)
    nothing = torch.zeros(0, dtype=torch.int64)
    loss = derive.load(catalog.find("cross_entropy"))(x, nothing, reduction="sum")
    assert torch.autograd.grad(loss, x)[0].shape == (0, 0)


def test_a_quotient_of_numbers_is_that_of_tensors():
    f = derive.load(derive.parse("op f(x[i], w[i]=1; s=2) -> y\ny[i] = x[i] + w[i]/s"))
    assert f(torch.ones(3), None, s=0.0).tolist() == f(torch.ones(3), torch.ones(3), s=0.0).tolist()


def test_the_tangent_takes_none_for_positions_and_masks():
    text = "op f(x[k,j], T[j]: int=1, m[j]: bool=1) -> y\ny[k] = logsumexp[j | m[j]](x[k,T[j]])"
    f = derive.load(derive.parse(text))
    x = torch.randn(3, 4, dtype=torch.float64)
    full = torch.ones(4, dtype=torch.int64), torch.ones(4, dtype=torch.bool)
    one, other = (
        torch.func.jvp(lambda x, rest=rest: f(x, *rest), (x,), (x.cos(),))
        for rest in ((None, None), full)
    )
    torch.testing.assert_close(one, other)


def test_flattened_axes_are_not_those_of_an_argument_that_is_not_read():
    text = (
        "op f(A[*p,j,*q], v[j], X[*p,j,*q]=2; dim=axis(j)) -> y\ny[*p,*q] = max[j](X[*p,j,*q]*v[j])"
    )
    with pytest.warns(DeriveWarning, match="A is not used"):
        op = derive.parse(text)
    compared(op)
