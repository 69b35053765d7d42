"""A branch that depends on the values of tensors is a choice between the two results."""

import pytest
import torch

import derive
from derive.tracing.read import reading

X = torch.tensor([0.5, -1.5, 2.0, 0.25, -0.75], dtype=torch.float64)
W = torch.tensor([1.0, -2.0, 0.5, -0.25, 3.0], dtype=torch.float64)


def mean_of_some(x, w):
    mask = w > 0
    if mask.sum() == 0:
        return x.sum() * 0
    return x[mask].mean()


def difference(x, w):
    some, others = x[w > 0], x[w <= 0]
    if some.numel() == 0 or len(others) < 2:
        return 0.0 * x.sum()
    return some.mean() - others.std()


def above(x, w):
    """The values of the pairs w[n] > w[m] that are above 0, of which there may be none."""
    n, m = torch.where(w[:, None] > w)
    z = torch.zeros(5, 5, dtype=x.dtype)
    z[n, m] = 2
    losses = (z * (x - x[:, None]))[n, m]
    if len(losses) <= 1:
        return x.sum() * 0
    losses = losses[losses > 0]
    return losses.mean() if len(n) > 0 and len(losses) >= 1 else x.sum() * 0


def rows(x, w):
    y = torch.outer(x, w)[w > 0]
    if y.numel() > 5:
        return y.exp().mean()
    return torch.zeros((), dtype=x.dtype)


def chain(x, w):
    if x.sum() > 0:
        x = x * 2
    elif (w > 0).all():
        x = x / w
    return x.exp().sum()


def added(x, w):
    total = 0
    for bound in (0, 1):
        mask = w > bound
        if mask.any().item():
            total = total + x[mask].square().mean()
    return total + x.sum()


def checked(x, w):
    if (w > 100).any() or not (x < 100).all():
        raise ValueError("large")
    return x.sum() if w.max() > 0 else (x * w).sum()


def caught(x, w):
    try:
        if w.max() < 0:
            raise ValueError
    except ValueError:
        return (x * w).sum() * 3
    return x.square().sum()


def told(x, w):
    if torch.isnan(w).any():
        print("nan")
    return (x * w).sum()


def twice(x, w):
    some = (w > 0).any()
    if some:
        mean = x[w > 0].mean()
    total = x.sum()
    if (w > 0).any():
        total = total + mean
    return total


def checked_in_a_branch(x, w):
    if w.sum() > 0:
        return x.exp().sum()
    if (x > 100).any():
        raise ValueError("large")
    return x.square().sum()


def refused(x, w):
    if w.max() > 0.5:
        return x.exp().sum()
    if w.max() > -9:
        return x.square().sum()
    raise ValueError("small")


def share(x, w):
    some, others = x[w > 0], x[w < 0]
    if len(some) / len(x) > 0.5 or others.numel() // 2 == 1:
        return some.sum()
    return others.sum()


def both_counts(x, w):
    some, others = x[w > 0], x[w < 0]
    if (len(some) > 1) & (len(others) > 1):
        return some.std() - others.std()
    return x.sum()


def numbers(x, w):
    if x.sum().item() > 0:
        return x.sum()
    few = float((w > 0).sum()) < 2
    return (x * w).sum() if few or int((w < 0).sum()) == 0 else x.square().sum()


def number(x, w):
    if not (w > 0).any():
        return 0.0
    return x[w > 0].mean()


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (mean_of_some, "y = where(sum[c](where(mask[c], 1, 0)) == 0, sum[c](x[c])*0, mean["),
        (difference, ")) < 2, mul, mean["),
        (above, "mean[c, c2 | kept[c, c2] and gt[c, c2]](losses[c, c2])"),
        (rows, ")*size(c) > 5, mean[c, c2 | gt[c]](exp("),
        (chain, "where(all["),
        (added, "where(any["),
        (checked, "y = where(amax[c](w[c]) > 0, sum[c](x[c]), sum["),
        (caught, "where(amax["),
        (told, "y = sum[c](x[c]*w[c])"),
        (twice, "total2 = total + where(some, mean_, 0)"),
        (checked_in_a_branch, "> 0, sum[c](exp(x[c])), sum["),
        (refused, "y = where(amax[k](w[k]) > 0.5, sum["),
        (share, ")/size(c) > 0.5, sum["),
        (both_counts, "y = where(sum["),
        (numbers, "where("),
        (number, ", mean["),
        (
            lambda x, w: x.sum() * float((w > 1).any()) + int(w[0] > 0),
            "where(any[k](w[k] > 1), where(",
        ),
    ],
)
def test_both_branches_are_read(function, said):
    op = derive.read_torch(function, X, W)
    assert said in str(op)
    read = derive.load(op)
    for w in (W, -W, W.abs(), -W.abs(), W.abs() + 1):
        x = [s * X.clone() for s in (1, -1)]
        for values in x:
            own = [t.clone().requires_grad_() for t in (values, w)]
            want = torch.as_tensor(function(*own), dtype=X.dtype)
            have = read(*own)
            torch.testing.assert_close(have, want)
            if not want.requires_grad:
                want = want + own[0].sum() * 0
            grads = (torch.autograd.grad(y, own, materialize_grads=True) for y in (have, want))
            torch.testing.assert_close(*grads)


def of_classes(x, w):
    total = 0
    for c in range(8):
        mask = w.round() == c
        if mask.sum() == 0:
            continue
        total += ((x[mask] - c) ** 2).sum()
    return total


def scaled_rows(x, w):
    y, rows = x.outer(w), torch.arange(len(x))
    for sign in (-1, 1):
        some = rows[w * sign > 0]
        if some.shape[0] > 0:
            y[some] = y[some] * 2 - y[some].mean(0)
    return torch.where(x[:, None] > 0, y, 0).view(-1)


def inner(x, w):
    total, some = x.new_zeros(1), w > 0
    if some.any():
        rest = x[some]
        if (rest > 1).any():
            total = total + rest[rest > 1].sum()
    return total


def chosen(x, w):
    large = w > 1
    if not large.any():
        return x * 3, x.new_zeros(())
    return torch.where(large, -x, x) * 3, -x[large].sum()


@pytest.mark.parametrize("function", [of_classes, scaled_rows, inner, chosen])
def test_what_only_skips_work_on_an_empty_selection_is_no_branch(function):
    op = derive.read_torch(function, X, W)
    assert "where(any" not in str(op) and "== 0," not in str(op)
    assert_alike_where_masks_are_empty(function, derive.load(op))


def dice(x, w):
    total = x.new_zeros(())
    for c in range(5):
        if (w == c).sum() == 0:
            continue
        total = total + 1 - 2 * x[w == c].sum() / (x.square().sum() + 1)
    return total


def in_place(x, w):
    y, large = x * w, (w > 2).sum() < 2
    y.add_(x[w > 0].mean()) if (w > 0).any() else None
    return y if large else y - x[w > 2].amax()


@pytest.mark.parametrize("function", [dice, in_place])
def test_what_adds_a_term_is_a_choice_of_the_term(function):
    op = derive.read_torch(function, X, W)
    assert len(str(op).splitlines()) < 20 and "y = where(" not in str(op)
    assert_alike_where_masks_are_empty(function, derive.load(op))


def present(x, w):
    """A class that is not there is not counted."""
    total = count = 0
    for c in (1, 3):
        if (mask := w == c).any():
            total, count = total + x[mask].sum(), count + 1
    return total / max(count, 1)


def listed(x, w):
    """Without any, the result is another, as it is with one of the two or both."""
    parts = [x[w == c].sum() for c in (1, 3) if (w == c).any()]
    return sum(parts) if parts else x.sum()


def after_another(x, w):
    """Where none is above 0, the second test decides."""
    some = w > 0
    if some.any():
        x = torch.where(some, x, 0 * x)
    return x[some].sum() if (w < 0).any() else x.sum() * 5


@pytest.mark.parametrize("function", [present, listed, after_another])
def test_what_does_more_than_to_skip_is_a_branch(function):
    op = derive.read_torch(function, X, W)
    assert "where(any" in str(op)
    assert_alike_where_masks_are_empty(function, derive.load(op))


def assert_alike_where_masks_are_empty(function, read):
    for w in (W, -W, W.abs(), -W.abs(), W * 0 + 1, W * 0 + 3, torch.tensor([1.0, 3, 0, 3, -1])):
        own = [t.to(X.dtype).clone().requires_grad_() for t in (X, w)]
        want, have = (f(*own) for f in (function, read))
        want, have = ([*y] if isinstance(y, tuple) else [torch.as_tensor(y)] for y in (want, have))
        torch.testing.assert_close(have, [y.to(X.dtype) for y in want])
        if any(y.requires_grad for y in want):
            total = (sum(y.sum() for y in made) + 0 * own[0].sum() for made in (have, want))
            torch.testing.assert_close(
                *(torch.autograd.grad(y, own, materialize_grads=True) for y in total)
            )


def test_a_check_in_a_branch_is_assumed():
    text = reading(checked_in_a_branch, X, W).text
    assert "if (x > 100).any() (assumes that the tensor is False;" in text


class Chooses(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.other = torch.nn.Linear(5, 4), torch.nn.Linear(5, 4)

    def forward(self, x):
        return self.one(x).tanh() if x.sum() > 0 else self.other(x)


def test_the_parts_of_a_module_that_chooses_derive_no_code_of_their_own(monkeypatch):
    made = []
    monkeypatch.setattr("derive.api.load", lambda op, load=derive.load: made.append(op) or load(op))
    model = torch.nn.Sequential(Chooses(), torch.nn.LayerNorm(4))
    replaced = derive.replace(model)
    x = torch.randn(3, 5)
    for values in (x, -x):
        torch.testing.assert_close(replaced(values), model(values))
    assert len(made) <= 2


def one_or_both(x, w):
    if x.sum() > 0:
        return x.exp().sum()
    return (x * w).sum()


def test_an_input_of_the_other_branch_has_its_gradient():
    derived = derive.differentiate(one_or_both)
    for x in (X, -X):
        own = [t.clone().requires_grad_() for t in (x, W)]
        have, want = derived(*own), one_or_both(*own)
        grads = (torch.autograd.grad(y, own, materialize_grads=True) for y in (have, want))
        torch.testing.assert_close(*grads)


def test_a_branch_that_changes_an_argument_is_refused():
    def f(x):
        if x.sum() > 0:
            x.mul_(2)
        return x.exp()

    with pytest.raises(derive.DeriveError, match="changes an argument"):
        derive.read_torch(f, X)


def test_a_triangle_of_ones_compared_is_a_comparison_of_positions():
    read = derive.read_torch(lambda x: x * (torch.ones_like(x).tril() < 1), torch.ones(3, 4))
    assert str(read).endswith("*[c > n]")
