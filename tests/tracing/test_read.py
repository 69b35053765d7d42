"""PyTorch code read as operations: what is right, what is refused, what is left untouched."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from kit.command import derive as command
from kit.each import some_now

import derive
from derive.tracing import validate
from derive.tracing.read import reading

sys.path.insert(0, str(Path(__file__).parents[1] / "corpus"))
from functions import CORPUS
from run import specs

QUICK = (
    "gelu silu elu softmax log_softmax glu linear bilinear layer_norm normalize smooth_l1_loss "
    "cross_entropy nll_loss cosine_similarity embedding causal_attention LayerNorm Embedding "
    "Sequential GroupNorm pixel_shuffle llama_rms_norm swiglu_mlp rotary self_attention fused_qkv "
    "focal_loss squeeze_excite group_norm_by_hand edge_scores alibi einsum_bmm"
).split()


@pytest.mark.parametrize("name", some_now(QUICK, len(QUICK), 2))
def test_the_corpus_is_read(name):
    function, example = CORPUS[name]
    made = reading(function, *example(), comments=False)
    assert derive.parse(made.text) == made.operation
    assert made.text == specs()[name]


def rms(x, weight, eps=1e-6):
    variance = x.pow(2).mean(-1, keepdim=True)
    return weight * x * torch.rsqrt(variance + eps)


def test_names_letters_numbers_and_places_are_those_of_the_code():
    made = reading(rms, torch.randn(2, 3, 5), torch.randn(5), letters={"x": "btd"})
    line = rms.__code__.co_firstlineno
    assert made.text == (
        "op rms(x[b,t,d], weight[d]; eps=1e-06) -> y\n"
        f"# line {line + 1}: variance = x.pow(2).mean(-1, keepdim=True)\n"
        "variance[b,t] = mean[d](x[b,t,d]**2)\n"
        f"# line {line + 2}: return weight * x * torch.rsqrt(variance + eps)\n"
        "y[b,t,d] = weight[d]*x[b,t,d]*rsqrt(variance[b,t] + eps)\n"
    )


@pytest.mark.parametrize("letters", [{"x": "bt"}, {"z": "btd"}])
def test_letters_that_fit_no_input_are_an_error(letters):
    with pytest.raises(derive.DeriveError, match=r"fit no .* x with 3 letters, weight with 1 let"):
        reading(rms, torch.randn(2, 3, 5), torch.randn(5), letters=letters)


def test_a_number_stays_one_where_it_is_not_asked_for():
    op = derive.read_torch(rms, torch.randn(2, 3, 5), torch.randn(5), parameters=())
    assert not op.parameters


def test_sizes_that_are_equal_in_the_example_are_kept_apart():
    f = derive.load(derive.read_torch(lambda x, w: x @ w, torch.randn(4, 4), torch.randn(4, 4)))
    x, w = torch.randn(2, 3), torch.randn(3, 5)
    torch.testing.assert_close(f(x, w), x @ w)


def on_values(x):
    while x.sum() > 1:
        x = x / 2
    return x


def fails_elsewhere(x):
    if x.max() > 1000:
        x = x.reshape(3, 5)
    return x * 2


def a_number_elsewhere(x):
    return x * 2 if x.max() > 0 else None


def random(x):
    return x * torch.rand_like(x)


def of_a_mask(x):
    return x[x > 0]


def into_a_part(x):
    first = x[:, 0]
    first *= 2
    return x


def in_place(x):
    y = x * 2
    y += 1
    y.mul_(x)
    return y.relu_()


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (on_values, r"depends on the values of a tensor"),
        (fails_elsewhere, r"x = x.reshape\(3, 5\)\): RuntimeError: shape"),
        (a_number_elsewhere, r"and the branches return different objects"),
        (random, r"test_read.py:\d+: return x \* torch.rand_like\(x\)"),
        (of_a_mask, r"number of elements depends on the values of a mask"),
        (into_a_part, r"test_read.py:\d+: first \*= 2\): the function changes an argument"),
        (lambda x: None, r"returns no tensor"),
        (lambda x: F.max_pool1d(x, 2, return_indices=True), r"returns positions .* max_pool"),
        (lambda x: x.sum().softmax(0), r"softmax of a tensor without axes is not supported"),
        (lambda x: F.dropout(x, 0.5), r"random numbers"),
        (3, r"is not a function or module"),
        (lambda x: SimpleNamespace(y=x), r"returns SimpleNamespace, not a tensor"),
    ],
)
def test_what_cannot_be_read_says_where_and_why(function, said):
    with pytest.raises(derive.DeriveError, match=said):
        derive.read_torch(function, torch.randn(4, 3))


def test_wrong_arguments_are_an_error():
    with pytest.raises(derive.DeriveError, match="do not match the arguments"):
        derive.read_torch(rms, torch.randn(4, 3))
    with pytest.raises(derive.DeriveError, match="contain no tensor"):
        derive.read_torch(lambda x: x, 3)


def test_nothing_is_returned_that_differs(monkeypatch):
    """A reading that is wrong in one number is an error."""

    def wrong(op, *rest):
        return check(derive.parse(str(op).replace("2", "3")), *rest)

    check = validate.check
    monkeypatch.setattr("derive.tracing.read.check", wrong)
    with pytest.raises(derive.DeriveError, match="differs from the function"):
        derive.read_torch(lambda x: x**2, torch.randn(4, 3))


def test_what_is_under_no_grad_has_no_gradient():
    def f(x):
        with torch.no_grad():
            scale = x.abs().amax(-1, keepdim=True)
        return x / scale

    op = derive.read_torch(f, torch.randn(3, 5))
    assert "detach" in str(op)
    x = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    have, want = (torch.autograd.grad(g(x).sin().sum(), x) for g in (derive.load(op), f))
    torch.testing.assert_close(have, want)


def test_what_is_written_over_a_tensor_is_what_it_is_then():
    op = derive.read_torch(in_place, torch.randn(4, 3))
    x = torch.randn(3, 2)
    torch.testing.assert_close(derive.load(op)(x), in_place(x))


def test_lists_keywords_and_several_outputs():
    def f(xs, *, scale=2.0, shift=None):
        a, b = xs
        return {"sum": (a + b) * scale, "product": a * b}

    op = derive.read_torch(f, [torch.randn(2, 3), torch.randn(2, 3)], scale=3.0)
    assert [t.name for t in op.inputs] == ["xs0", "xs1"] and len(op.outputs) == 2


def test_a_model_is_left_as_it_is():
    model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.LayerNorm(6), torch.nn.Dropout())
    model.eval()
    before = {
        k: (t, t.clone(), t.requires_grad) for k, t in model.state_dict(keep_vars=True).items()
    }
    derive.read_torch(model, torch.randn(3, 4))
    after = model.state_dict(keep_vars=True)
    for k, (t, copy, wanted) in before.items():
        assert after[k] is t and torch.equal(t, copy) and t.requires_grad == wanted
        assert t.grad is None
    assert not model.training and not any(m._forward_hooks for m in model.modules())
    assert torch.nn.functional.relu(torch.ones(1)).item() == 1


def test_the_command_prints_a_spec_that_is_read_back(tmp_path: Path):
    (tmp_path / "code.py").write_text(
        "import torch\n\n\ndef f(x, w):\n    h = torch.tanh(x @ w)\n    return h.sum(1)\n"
    )
    (tmp_path / "example.py").write_text(
        "import torch\n\n\ndef examples():\n    return [[torch.ones(2, 3), torch.ones(3, 5)]]\n"
    )
    done = command("read", "code.py:f", "--example", "example.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "op f(x[n,c], w[c,k]) -> y\n"
        "# line 5: h = torch.tanh(x @ w)\n"
        "h[n,k] = tanh(sum[c](x[n,c]*w[c,k]))\n"
        "# line 6: return h.sum(1)\n"
        "y[n] = sum[k](h[n,k])\n"
    )
    done = command("read", "code.py:g", "--example", "example.py", cwd=tmp_path)
    assert done.returncode == 2 and "has no g; it has" in done.stderr


def test_statements_are_those_of_the_file_as_it_is_now(tmp_path: Path):
    """A file that is edited and imported again, as in a notebook, has the names of its new code."""
    (tmp_path / "example.py").write_text(
        "import torch\n\n\ndef examples():\n    return [[torch.ones(2, 3)]]\n"
    )
    for name in ("first", "second_one"):
        (tmp_path / "code.py").write_text(
            f"def f(x):\n    {name} = x.sum(1)\n    return {name} * {name}\n"
        )
        done = command("read", "code.py:f", "--example", "example.py", cwd=tmp_path)
        assert f"{name}[n] = sum[c](x[n,c])" in done.stdout


def by_size(x):
    return x * 2 if x.shape[0] < 100 else x * 3


def by_whole_number(x):
    return x * 2 if x.shape[0] % 2 == 0 else x * 3


def by_equality(x):
    return x * 2 if x.shape[0] == x.shape[1] else x * 3


def far(x):
    return x * 2 if x.shape[0] != 10**9 else x * 3


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (by_size, r"another branch where x.shape\[0\] < 100 is false"),
        (by_whole_number, r"another branch where .* % 2\) == 0 is false \(test_read.py:.*: return"),
        (by_equality, r"another branch where x.shape\[0\] != x.shape\[1\] is false"),
        (far, r"is false .* cannot be checked"),
    ],
)
def test_a_branch_on_sizes_is_seen(function, said):
    with pytest.raises(derive.DeriveError, match=said):
        derive.read_torch(function, torch.randn(4, 3))


def test_a_product_of_two_block_diagonal_matrices_is_read():
    def monarch(x, left, right):
        blocks = x.reshape(-1, right.shape[1], left.shape[1])
        inner = torch.einsum("nka,kca->nkc", blocks, left)
        y = torch.einsum("nck,cdk->ncd", inner.transpose(1, 2), right)
        return y.reshape(x.shape[0], -1)

    with pytest.warns(derive.DeriveWarning, match="at an axis of size 1"):
        op = derive.read_torch(monarch, *map(torch.randn, ((5, 6), (3, 2, 2), (2, 3, 3))))
    assert [e.name for e in op.equations] == ["inner", "y", "joined"]


def test_a_branch_that_takes_other_arguments_is_seen():
    """Where x has more rows than columns, only as many positions as columns are taken."""

    def f(x, i):
        return x[i].sum(0) if x.shape[0] <= x.shape[1] else x[i, i[: x.shape[1]]]

    with pytest.raises(derive.DeriveError, match=r"x.shape\[0\] <= x.shape\[1\] is false"):
        derive.read_torch(f, torch.randn(3, 5), torch.tensor([1, 0, 0, 2]))


def test_a_branch_on_the_mode_of_gradients_is_seen():
    with pytest.raises(derive.DeriveError, match=r"another branch under torch.no_grad\(\)"):
        derive.read_torch(lambda x: x * 2 if torch.is_grad_enabled() else x * 3, torch.ones(4, 3))


def test_a_branch_on_a_number_keeps_it_a_constant():
    def f(x, p=1.0, q=2.0):
        return x * p + q if p < 5 else x.exp() * p

    op = derive.read_torch(f, torch.randn(4, 3))
    assert [p.name for p in op.parameters] == ["q"]


def test_casts_are_the_identity():
    def f(x, w):
        h = x.to(torch.float32)
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)
        return w * h.to(x.dtype) * torch.softmax(x.half(), -1, dtype=torch.float32).type_as(x)

    op = derive.read_torch(f, torch.randn(2, 3), torch.randn(3))
    assert not any(word in str(op) for word in ("float", "half", "int("))


class Keeps(torch.nn.Module):
    def forward(self, x):
        self.last = x * 2
        return self.last.sum()


class Adds(torch.nn.Module):
    """A number that a call makes a tensor."""

    def __init__(self):
        super().__init__()
        self.state = 0.0

    def forward(self, x):
        self.state = self.state + x / 2
        return self.state.exp()


class Moves(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("average", torch.zeros(3))

    def forward(self, x):
        self.average.mul_(0.9).add_(x.mean(0).detach())
        return x - self.average


def test_what_a_module_does_to_itself():
    module = Keeps()
    derive.read_torch(module, torch.randn(4, 3))
    assert "last" not in vars(module)
    assert "= exp(x[n, c]/2)" in str(derive.read_torch(Adds(), torch.randn(4, 3)))
    replaced = derive.replace(module)
    x = torch.randn(4, 3)
    replaced(x)
    torch.testing.assert_close(replaced.last, x * 2)
    with pytest.raises(derive.DeriveError, match="changes an argument, parameter or buffer"):
        derive.read_torch(Moves(), torch.randn(4, 3))


def test_two_statements_on_a_line_are_told_apart():
    def f(x):
        a = x.exp(); b = a.sum(-1, keepdim=True)  # fmt: skip  # noqa: E702
        return a / b

    made = reading(f, torch.randn(3, 4))
    assert "a = x.exp()\na[n,c] = exp(x[n,c])\n" in made.text
    assert "b = a.sum(-1, keepdim=True)\nb[n] = sum[c](a[n,c])\n" in made.text


def test_what_only_validates_is_answered_as_the_examples_do():
    def f(x):
        if torch.isnan(x).any():
            raise ValueError("nan")
        if not (x > -100).all():
            raise ValueError("small")
        if torch.equal(x, -x) or not x.allclose(x.exp().log()) or (x > 100).any().item():
            raise ValueError("alike or large")
        return x * 2

    made = reading(f, torch.randn(3, 4))
    line = f.__code__.co_firstlineno
    assert (
        f"# test_read.py:{line + 1}: if torch.isnan(x).any() (assumes that the tensor is False; "
        in made.text
    )
    assert "if not (x > -100).all() (assumes that the tensor is True; " in made.text
    assert made.text.count(": if torch.equal(x, -x)") == 3
    assert {"__bool__", "item", "equal"}.isdisjoint(vars(torch.Tensor))


def checked_by(holds, text):
    if not holds:
        raise ValueError(text)


def test_a_function_that_is_given_the_answer_may_validate_it():
    def f(x):
        holds = bool((x < 1000).all())
        checked_by(holds, "" if holds else f"too large: {x}")
        return x * 2

    assert "*2" in reading(f, torch.randn(2, 3), name="f").text


def test_what_leads_to_nothing_is_not_read():
    def f(x):
        torch.linalg.svdvals(x)
        return (x > 0).any(1)[:, None] * x

    assert "svd" not in str(derive.read_torch(f, torch.randn(3, 4)))


def test_a_list_of_one_position_counts_from_the_end():
    x = torch.randn(2, 5, 4)
    op = derive.read_torch(lambda x: x[:, [-1]] * 2, x)
    torch.testing.assert_close(derive.load(op)(x), x[:, [-1]] * 2)


def pairs(x, y):
    """Every row of x with every row of y, under two transforms."""

    def one(a, b):
        return ((a - b) ** 2).sum() / (2 * a.shape[0]) + 3 * b[a.shape[0] // 2]

    return torch.func.vmap(torch.func.vmap(one, (None, 0)), (0, None))(x, y)


def slopes(x, y):
    return torch.vmap(torch.func.grad(lambda a: torch.tanh(a @ y[0]).sum()))(x)


def turned_in_place(x, y):
    z = (x * 2).unsqueeze_(1)
    z.squeeze_(1).add_(1)
    return z @ y.clone().t_()


@pytest.mark.parametrize("f", [pairs, slopes, turned_in_place])
def test_a_transform_and_a_shape_that_changes_in_place_are_read(f):
    op = derive.read_torch(f, torch.randn(4, 5), torch.randn(3, 5))
    for sizes in ((2, 7), (3, 1)):
        x, y = (torch.randn(n, sizes[1], dtype=torch.float64) for n in (sizes[0], 6))
        torch.testing.assert_close(derive.load(op)(x, y), f(x, y))


def with_numbers(x, t):
    loss = (x - t).square().mean()
    return 0.5, loss, {"loss": loss.item(), "rows": len(x), "name": "mse"}


def test_numbers_beside_tensors_are_left_out():
    given = torch.ones(3, 4), torch.ones(3, 4)
    op = derive.read_torch(with_numbers, *given)
    assert str(op).splitlines()[0] == "op with_numbers(x[n, c], t[n, c]) -> loss"
    with pytest.warns(derive.DeriveWarning, match="unchanged.* returns a number beside tensors"):
        assert derive.differentiate(with_numbers)(*given)[2]["rows"] == 3


def gated(x):
    return torch.sigmoid(x) * x


class Compiled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.compile(torch.nn.Linear(4, 2), backend="eager")

    def forward(self, x):
        return torch.utils.checkpoint.checkpoint(self.inner, x, use_reentrant=False).tanh()


@torch.jit.script
def _but_the_first(x: torch.Tensor):
    n: int = x.size(-1)
    return x.narrow(-1, 1, n - 1)


@torch.jit.script
def scripted(x: torch.Tensor, k: torch.Tensor):
    if torch.all(k == 0):
        return _but_the_first(x)
    return _but_the_first(x * k)


def test_a_scripted_function_is_read_as_the_plain_one():
    x, k = torch.ones(3, 4), torch.tensor(2.0)
    own = derive.read_torch(scripted, x, k)
    assert str(own).startswith("op scripted(x[n, c], k) -> y\ny[n, m] = where(k == 0, x[n, m + 1],")
    assert derive.read_torch(lambda x, k: scripted(x, k), x, k).equations == own.equations
    assert scripted(x, k).shape == (3, 3)


def test_a_size_that_is_given_is_fixed():
    given = torch.ones(3), torch.Size([5, 2])
    op = derive.read_torch(lambda x, shape: x.sum() * torch.ones(shape), *given)
    assert "size(k)=5, size(m)=2" in str(op)


def test_what_is_compiled_is_read_as_what_it_is_made_of():
    part, x = torch.compile(gated, backend="eager"), torch.ones(3, 4)
    texts = [str(derive.read_torch(f, x)) for f in (lambda x: part(x).sum(-1), Compiled(), part)]
    assert "sum[c](sigmoid(x[n, c])*x[n, c])" in texts[0]
    assert texts[1].startswith("op Compiled(x[n, c], inner_weight[k, c], inner_bias[k])")
    assert str(derive.read_torch(torch.compile(torch.nn.Tanh(), backend="eager"), x)).startswith(
        "op Tanh("
    )
    with pytest.warns(derive.DeriveWarning, match=r"it calls what torch\.compile made"):
        derive.differentiate(lambda x: part(x).sum(-1))(x)
