"""Operations that are not in index notation: which, where, and what to do instead."""

from functools import reduce

import pytest
import torch

import derive


def most_frequent(x):
    return x - x.mode(1, keepdim=True).values


def in_another_order(x):
    return x * torch.searchsorted(x[0], x[1], sorter=x[0].argsort())


def noisy(x):
    return x + torch.randn_like(x)


def drawn(x):
    return x * torch.bernoulli(torch.sigmoid(x))


def found(x):
    return x[(x > 0).nonzero(as_tuple=True)]


def masked_twice(x):
    return torch.nn.functional.mse_loss(x[x > 0], x[-x < 0] ** 2)


def in_their_order(x):
    return x.masked_scatter(x > 0, x.exp())


def counted(x):
    return x.sum() * torch.unique(x).sum()


def turned(x):
    return torch.view_as_complex(x.reshape(4, 2, 2)).abs()


def spectrum(x):
    return torch.fft.rfft(x).abs()


def inverted(x):
    return torch.linalg.inv(x) @ x


def volume(x):
    return torch.linalg.slogdet(x)[1]


LSTM, GRU = (layer(4, 3).requires_grad_(False) for layer in (torch.nn.LSTM, torch.nn.GRU))


def recurrent(x):
    return LSTM(x)[0]


def gated(x):
    return GRU(x)[0]


def bagged(x):
    return torch.nn.functional.embedding_bag(torch.tensor([2, 0, 3]), x, torch.tensor([0, 1]))


def unpooled(x):
    maxima, positions = torch.nn.functional.max_pool2d(x[None], 2, return_indices=True)
    return torch.nn.functional.max_unpool2d(maxima, positions, 2)


def kept(x):
    _, positions = torch.nn.functional.max_pool1d(x[None], 2, return_indices=True)
    return x.flatten()[positions]


def replaced(x):
    y = x.sin()
    y.data = x.cos()
    return y * x


def moved(x):
    x.data = x.data.to(x.device)
    return x * x


def iterated(x):
    return reduce(lambda z, _: torch.tanh(z @ x + x), range(200), x)


SAID = {
    most_frequent: "mode is not supported: .*positions as an integer argument",
    in_another_order: "searchsorted with a sorter is not supported; gather",
    noisy: "randn_like is not supported: it draws random numbers; .*argument",
    drawn: "bernoulli is not supported: it draws random numbers",
    found: "depends on the values",
    masked_twice: "two masks select as many .*; compute a mask once",
    in_their_order: "masked_scatter is not supported: the number of elements",
    counted: "depends on the values",
    turned: "complex tensors are not supported; write the real",
    spectrum: "complex|Fourier",
    inverted: "a matrix decomposition or linear solve",
    volume: "a matrix decomposition or linear solve",
    recurrent: "lstm is not supported: .*LSTMCell",
    gated: "gru is not supported: .*GRUCell",
    iterated: "nested too deeply .* long loop; read one step of it",
    bagged: "_embedding_bag.* is not supported: bags of one size are read",
    unpooled: "max_unpool2d is not supported: .*zeros.scatter_add",
    kept: "positions of a max_pool are read as an integer argument",
    replaced: "a tensor is given other data; write y = values, or .*detach",
}


def test_a_tensor_is_given_its_own_data():
    x = torch.randn(4)
    torch.testing.assert_close(derive.load(derive.read_torch(moved, x))(x), x * x)


@pytest.mark.parametrize("function", SAID)
def test_what_is_refused_says_which_where_and_what_to_do(function):
    with pytest.raises(derive.DeriveError, match=SAID[function]) as error:
        derive.read_torch(function, torch.randn(4, 4) + 3 * torch.eye(4))
    assert "test_reader.py:" in str(error.value)
