"""Convolutions and pools as sums, means and maxima over windows."""

import pytest
import torch
import torch.nn.functional as F
from kit.each import in_turns
from kit.reads import assert_read, r

import derive
from derive.tracing.read import reading

READ = [
    (lambda x, w, b: F.conv1d(x, w, b), [(2, 3, 8), (5, 3, 4), (5,)], "y[n,k,d] = sum[t,m](x["),
    (
        lambda x, w: F.conv1d(x, w, stride=2, padding=1, dilation=2),
        [(2, 3, 8), (5, 3, 3)],
        "2*d + 2*m - 1 >= 0 and 2*d + 2*m - 1 < size(c)",
    ),
    (lambda x, w: F.conv1d(x, w, padding="same"), [(2, 4, 8), (5, 4, 3)], "(size(m) - 1)//2"),
    (
        lambda x, w: F.conv1d(x, w, padding=w.shape[-1] // 2),
        [(2, 4, 8), (5, 4, 3)],
        "size(d)=size(c) + 2*(size(m)//2) - size(m) + 1",
    ),
    (
        lambda x, w: F.interpolate(F.conv1d(x, w, padding=1)[..., ::2], scale_factor=2.0),
        [(2, 3, 8), (5, 3, 4)],
        "y[n,k,(j h)] = u[n,k,2*j]",
    ),
    (lambda x, w: F.conv1d(x, w), [(4, 8), (5, 4, 3)], "sum[n,m]"),
    (lambda x, w: F.conv1d(x, w, groups=2), [(2, 4, 8), (6, 2, 3)], "[n,(j m),i + d]"),
    (lambda x, w: F.conv1d(x, w, groups=x.shape[1]), [(2, 4, 8), (4, 1, 3)], "w[t,0,k]"),
    (
        lambda x, w, b: F.conv2d(x, w, b, stride=2, padding=1),
        [(2, 3, 8, 7), (5, 3, 4, 2), (5,)],
        "size(i)=(size(h) - size(d))//2 + 2",
    ),
    (lambda x, w: F.conv2d(x, w), [(2, 3, 4, 5), (6, 3, 1, 1)], "sum[c](x[n,c,h,"),
    (
        lambda x, w: F.conv3d(x, w),
        [(1, 2, 4, 5, 6), (3, 2, 2, 3, 2)],
        "sum[c,d,j,h](x[0,c,i + d,o + j,p + h]",
    ),
    (
        lambda x, w: F.conv_transpose1d(x, w, stride=2, padding=1, output_padding=1),
        [(2, 3, 8), (3, 5, 4)],
        "| d == 2*c + m - 1]",
    ),
    (
        lambda x, w: F.conv_transpose2d(x, w, stride=2),
        [(2, 3, 4, 5), (3, 6, 2, 3)],
        "i == 2*h + d and o == 2*k + j",
    ),
    (lambda x, w: F.conv_transpose1d(x, w, groups=2), [(2, 4, 5), (4, 3, 2)], "sum["),
    (lambda x: F.avg_pool2d(x, 2), [(2, 3, 8, 7)], "mean[d,d2](x[n,c,2*k + d,2*m + d2])"),
    (lambda x: F.avg_pool1d(x, 3, 2, 1), [(2, 4, 9)], "/3"),
    (lambda x: F.avg_pool1d(x, 3, 2, 1, count_include_pad=False), [(2, 4, 9)], "mean[m | "),
    (lambda x: F.avg_pool1d(x, 2, ceil_mode=True), [(2, 3, 9)], "mean[m | 2*k + m < size(c)]"),
    (lambda x: F.max_pool2d(x, 3, 2, 1), [(2, 3, 8, 7)], "max[d,d2 | "),
    (lambda x: F.max_pool1d(x, 2, ceil_mode=True), [(2, 3, 9)], "max[m | 2*k + m < size(c)]"),
    (lambda x: F.adaptive_avg_pool2d(x, 1).flatten(1), [(2, 3, 8, 7)], "y[n,c] = mean[h,w]"),
    (lambda x: F.adaptive_max_pool1d(x, 2), [(2, 3, 8)], "max[m](x[n,t,(k m)])"),
    (lambda x: F.adaptive_avg_pool1d(x, 3), [(2, 4, 8)], "| c >= k*size(c) // 3 and "),
    (lambda x: F.interpolate(x, scale_factor=2) * 2, [(2, 3, 4, 5)], "y[n,c,(h k),(w k2)] = x"),
    (lambda x: F.interpolate(x, scale_factor=2, mode="linear"), [(2, 3, 4)], "maximum("),
    (lambda x: F.interpolate(x, size=7, mode="linear", align_corners=True), [(2, 3, 4)], "// 6"),
    (lambda x: F.interpolate(x, scale_factor=0.5).exp(), [(2, 3, 9)], "x[n,t,2*k]"),
    (lambda x: F.interpolate(x, scale_factor=1.5) * 2, [(2, 3, 7)], "2*k // 3"),
    (lambda x: F.interpolate(x, size=7).exp(), [(2, 3, 4)], "x[n,t,size(c)*k // 7]"),
    (
        lambda x, u: u * F.interpolate(x, size=u.shape[2:], mode="nearest-exact"),
        [(2, 3, 4), (2, 3, 7)],
        "x[n,t,(2*size(c)*k + size(c)) // (2*size(k))]",
    ),
    (
        lambda x, u, v: x + F.conv1d(F.conv1d(x, u, padding=1).relu(), v, padding=2),
        [(2, 3, 6), (4, 3, 3), (3, 4, 5)],
        "size(m)=3, size(d)=5)",
    ),
    (
        lambda x, u, v: (
            x[..., ::2].sum(1, keepdim=True)
            + F.conv1d(F.conv1d(x, u, padding=1, stride=2), v, padding=1)
        ),
        [(2, 3, 6), (4, 3, 3), (1, 4, 3)],
        "u[k,t,m]",
    ),
    (
        lambda x: F.interpolate(x, scale_factor=(0.5, 0.75), mode="bilinear"),
        [(2, 3, 7, 9)],
        "(2*d + 1)*4 - 3",
    ),
    (lambda x: F.unfold(x, 3, padding=1, stride=2), [(2, 3, 4, 5)], "where("),
    (lambda x: F.fold(x, (4, 5), 2) * 2, [(2, 12, 12)], "m == h + j and d == "),
]


@pytest.mark.parametrize(("function", "shapes", "said"), in_turns(READ, 2))
def test_windows_are_read(function, shapes, said):
    made = reading(function, *(r(*s) for s in shapes), name="f", comments=False)
    assert said in made.text
    assert derive.parse(made.text) == made.operation


def test_a_convolution_is_that_of_other_sizes():
    op = derive.read_torch(
        lambda x, w: F.conv2d(x, w, stride=2, padding=1), r(2, 3, 8, 7), r(5, 3, 3, 3)
    )
    x, w = r(1, 4, 6, 9), r(2, 4, 4, 2)
    torch.testing.assert_close(derive.load(op)(x, w), F.conv2d(x, w, stride=2, padding=1))


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda x: F.interpolate(x, scale_factor=0.3), "nearest upsampling requires a size, an"),
        (lambda x: F.avg_pool1d(x, 2, padding=1, ceil_mode=True), "both padding and ceil_mode"),
    ],
)
def test_what_is_no_window_says_so(function, said):
    with pytest.raises(derive.DeriveError, match=said):
        derive.read_torch(function, r(2, 3, 8))


def test_the_root_of_a_size_by_a_name_of_its_own():
    from math import sqrt

    def scaled(x):
        return x / root(x.shape[-1])  # noqa: F821

    scaled.__globals__["root"] = sqrt
    try:
        assert "sqrt(size(c))" in str(derive.read_torch(scaled, r(3, 4)))
    finally:
        assert scaled.__globals__.pop("root") is sqrt


@pytest.mark.parametrize("mode", ["replicate", "reflect", "circular"])
def test_a_padding_with_the_values_themselves_is_read_once_by_all_windows(mode):
    def f(x, w):
        return F.conv1d(F.pad(x, (2, 1), mode=mode), w).tanh()

    op = assert_read(f, [(2, 3, 7), (4, 3, 2)], [(1, 2, 5), (3, 2, 4)])
    assert "sum[t, m](padded[n, t, j + m]*w[k, t, m])" in str(op)
    assert "conv1d(" in derive.source(op, style="plain")
