"""Tables of torch operations: their effect on derivatives and memory."""

from __future__ import annotations

import re

SMOOTH = frozenset(
    """
    abs absolute acos acosh add addbmm addcdiv addcmul addmm addmv addr amax amin arccos arccosh
    arcsin arcsinh arctan arctan2 arctanh asin asinh atan atan2 atanh avg_pool1d avg_pool2d
    avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d baddbmm batch_norm bmm
    binary_cross_entropy binary_cross_entropy_with_logits cat cdist celu cholesky
    cholesky_solve clamp clamp_max clamp_min clip clone concat concatenate conv1d conv2d conv3d
    conv_transpose1d conv_transpose2d conv_transpose3d copysign cos cosh cosine_similarity cov
    cross cross_entropy cummax cumprod cumsum det diag diag_embed diff digamma dist div divide dot
    einsum elu erf erfc erfinv exp exp2 expm1 fft fft2 fftn ifft ifft2 ifftn rfft rfft2 rfftn irfft
    irfft2 irfftn fill flip fliplr flipud fmod fold unfold gather gelu glu group_norm hardsigmoid
    hardswish hardtanh hstack huber_loss hypot index_add index_copy index_fill index_put
    index_select inner instance_norm inv inverse kl_div kron l1_loss layer_norm leaky_relu lerp
    lgamma linear log log10 log1p log2 log_softmax logaddexp logaddexp2 logcumsumexp logdet
    logsigmoid logsumexp masked_fill masked_scatter masked_select matmul matrix_exp matrix_power
    maximum mean minimum mish mse_loss mul multi_dot multiply multiply mv nan_to_num nanmean nansum
    neg negative nll_loss norm normalize outer pad pinverse polygamma pow prod rad2deg deg2rad
    reciprocal relu relu6 remainder renorm repeat repeat_interleave roll rot90 rms_norm rsqrt
    scaled_dot_product_attention scatter scatter_add scatter_reduce selu sigmoid silu sin sinc sinh
    smooth_l1_loss softmax softmin softplus softshrink softsign solve solve_triangular sqrt square
    stack std sub subtract sum swish take take_along_dim tan tanh tanhshrink tensordot threshold
    tile trace tril triu true_divide trapz trapezoid unfold var vander vdot vector_norm matrix_norm
    vecdot vstack where xlogy xlog1py
    """.split()
)
"""Differentiable, and return a new tensor; their integer arguments are positions and axes."""

FLAT = frozenset(
    """
    all allclose any argmax argmin argsort arange bernoulli bincount bitwise_and bitwise_not
    bitwise_or bitwise_xor bool bucketize byte ceil char count_nonzero empty empty_like eq equal
    eye fix floor floor_divide full full_like ge gt heaviside int isclose isfinite isinf isnan
    le linspace logical_and logical_not logical_or logical_xor long lt multinomial ne new_empty
    new_full new_ones new_tensor new_zeros nonzero normal not_equal one_hot ones ones_like poisson
    rand rand_like randint randint_like randn randn_like randperm round searchsorted sgn short sign
    signbit trunc tril_indices triu_indices unique zeros zeros_like histc
    """.split()
)
"""Return a new tensor whose derivative is 0 where it exists, or that reads no values."""

BLANK = frozenset(
    """
    arange empty empty_like eye full full_like linspace new_empty new_full new_ones new_tensor
    new_zeros ones ones_like rand rand_like randn randn_like randperm zeros zeros_like
    """.split()
)
"""Return a new tensor without reading the values of other tensors."""

NOTHING = frozenset("zeros zeros_like new_zeros empty empty_like new_empty".split())
"""Return a tensor of zeros, or an uninitialized one."""

NUMBER = frozenset(
    """
    data_ptr dim element_size get_device is_complex is_contiguous is_floating_point is_signed
    ndimension nelement numel size storage_offset stride type_name
    """.split()
)
"""Methods that return a property of a tensor other than its values."""

VALUE = frozenset("item tolist numpy".split())
"""Methods that take values out of torch."""

VIEW = frozenset(
    """
    adjoint as_strided diagonal expand expand_as movedim moveaxis mT mH narrow permute select
    squeeze swapaxes swapdims t transpose unflatten unsqueeze view view_as view_as_complex
    view_as_real T H real imag
    """.split()
)
"""Return a view: other strides, the same memory."""

CONTIGUOUS = frozenset("contiguous reshape reshape_as flatten ravel".split())
"""Return the tensor itself or a view of it if it is contiguous, else a copy."""

CAST = frozenset(
    "to type type_as float half double bfloat16 cuda cpu requires_grad_ broadcast_to".split()
)
"""Return the tensor itself if dtype and device fit already, else a copy."""

PIECES = frozenset("chunk split tensor_split unbind hsplit vsplit dsplit split_with_sizes".split())
"""Return several views of a tensor."""

PAIRS = frozenset("max min sort topk kthvalue median mode cummax cummin nanmedian".split())
"""Return (values, positions); only the values have a derivative."""

TENSOR_METHODS = frozenset(
    """
    bmm clamp contiguous data_ptr detach dim element_size exp expand expand_as flatten
    is_contiguous masked_fill masked_select matmul mm new_empty new_ones new_tensor new_zeros numel
    permute requires_grad_ reshape softmax sqrt squeeze storage_offset stride transpose unsqueeze
    untyped_storage view view_as
    """.split()
)
"""Methods that arguments of a forward other than tensors are unlikely to have."""

COLLECTIVES = frozenset("all_reduce broadcast reduce".split())
"""Functions of torch.distributed that write into their first argument."""

_NOT_VALUES = frozenset(
    """
    requires_grad_ detach_ resize_ resize_as_ set_ share_memory_ squeeze_ unsqueeze_ t_ transpose_
    swapaxes_ swapdims_ as_strided_ rename_ pin_memory_ apply_ map_ register_
    """.split()
)


def in_place(name: str) -> bool:
    """True if a method of this name changes the values of its tensor."""
    return bool(re.fullmatch(r"[a-z]\w*[a-z0-9]_", name)) and name not in _NOT_VALUES
