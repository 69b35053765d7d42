"""The code of kernels: axes and numbers of their arguments."""

import pytest

import derive


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("y[i,j] = w[j]*x[i,j]*sigmoid(x[i,j])", "w * torch.nn.functional.silu(x)"),
        ("y[i,j] = x[j]*sigmoid(x[j])*w[i,j]", "silu_backward((G * w).sum(0), x)"),
        ("op f(x[i,k]) -> y\ny[k,i] = x[i,k]*sigmoid(x[i,k])", "silu(x.mT)"),
        ("op f(x[i]; a=2) -> y\ny[i] = where(x[i] > 0, x[i], a*expm1(x[i]))", "elu(x, a)"),
        ("y[i,k] = softmax[k](x[i,k])", "_softmax_backward_data(G, y, 1, y.dtype)"),
        ("op f(x[*p,k,*q]; dim=axis(k)) -> y\ny[*p,k,*q] = softmax[k](x[*p,k,*q])", "(G, y, dim, "),
        ("op f(x[k,t]; size(t)=2) -> y\ny[k] = x[k,0]*sigmoid(x[k,1])", "glu(x, 1).squeeze(1)"),
        (
            "op f(x[k,t], w[k]; size(t)=2) -> y\ny = sum[k](w[k]*x[k,0]*sigmoid(x[k,1]))",
            "glu_backward((G * w).unsqueeze(1), x, 1)",
        ),
    ],
)
def test_arguments_are_brought_to_one_layout(text, code):
    assert code in derive.source(derive.parse(text))
