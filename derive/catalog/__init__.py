"""The operations we ship, as SymPy equations: one file a family, nothing but data.

A family is imported when one of its operations is asked for.
"""

from __future__ import annotations

from importlib import import_module

from derive.notation.operation import Operation

__all__ = ["FAMILIES", "find", "names", "operations"]

FAMILIES = {
    "elementwise": (
        *("exp log log1p expm1 sqrt rsqrt square sin cos tan asin acos atan".split()),
        *("sinh cosh tanh sigmoid softplus logsigmoid relu erf erfc lgamma digamma".split()),
        *("abs sign floor maximum minimum clamp atan2 pow".split()),
    ),
    "activations": (
        *("gelu silu mish elu selu celu leaky_relu prelu relu_squared hardtanh relu6".split()),
        *("hardsigmoid hardswish softsign tanhshrink softshrink hardshrink threshold".split()),
        *("glu swiglu geglu".split()),
    ),
    "matrix": (
        *("transpose matmul linear bilinear dot mv outer addmm baddbmm trace diagonal".split()),
        *("diag_embed tril triu quadratic_form gram kron khatri_rao multi_dot tucker".split()),
        "parafac",
    ),
    "indexing": (
        *("embedding", "flatten", "unflatten", "concat"),
        *("gather", "take_along_dim", "index_select", "take", "select"),
        *("index_add", "scatter_add", "segment_sum", "segment_mean", "segment_max"),
        "segment_softmax",
        *("embedding_bag", "one_hot_embedding"),
        *("shift", "roll", "flip", "where", "masked_fill"),
        *("pad", "stack", "expand", "repeat_interleave", "tile", "unfold", "im2col"),
        *("pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "toeplitz", "relative_shift"),
    ),
    "reductions": (
        *("sum mean prod max min amax amin logsumexp var std var_mean".split()),
        *("l1_norm l2_norm vector_norm cumsum cumprod logcumsumexp".split()),
    ),
    "softmaxes": ("softmax", "log_softmax", "softmin"),
    "normalizations": (
        *("batch_norm", "batch_norm_inference", "layer_norm", "rms_norm"),
        *("instance_norm", "group_norm", "normalize", "weight_norm", "local_response_norm"),
    ),
    "losses": (
        *("nll_loss", "cross_entropy", "cross_entropy_probabilities"),
        *("linear_cross_entropy", "softmax_regression"),
        *("focal_loss", "info_nce", "dice_loss", "tversky_loss"),
    ),
    "pointwise_losses": (
        *("mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy".split()),
        *("binary_cross_entropy_with_logits sigmoid_focal_loss kl_div kl_div_log_target".split()),
        *("poisson_nll_loss gaussian_nll_loss soft_margin_loss".split()),
    ),
    "margin_losses": (
        *("hinge_loss hinge_embedding_loss margin_ranking_loss multi_margin_loss".split()),
        *("triplet_margin_loss cosine_embedding_loss".split()),
    ),
    "recurrent": ("rnn_tanh_cell", "gru_cell", "lstm_cell"),
    "attention": (
        *("scaled_dot_product_attention", "masked_attention", "causal_attention"),
        *("sliding_window_attention", "alibi_attention", "relative_attention"),
        *("grouped_query_attention", "multi_head_attention", "causal_self_attention"),
        *("cross_attention", "linear_attention", "causal_linear_attention", "graph_attention"),
        "rotary_embedding",
    ),
    "distances": (
        *("cdist_squared", "cdist", "cdist_manhattan"),
        *("rbf_kernel", "laplacian_kernel", "cauchy_kernel", "rational_quadratic_kernel"),
        *("polynomial_kernel", "sigmoid_kernel"),
        *("pairwise_distance", "cosine_similarity", "mahalanobis", "mmd"),
    ),
    "convolution": (
        *("conv1d", "conv2d", "grouped_conv1d", "depthwise_conv1d", "depthwise_conv2d"),
        *("same_conv1d", "causal_conv1d", "conv_transpose1d"),
        *("avg_pool1d", "avg_pool2d", "max_pool1d", "max_pool2d", "lp_pool1d"),
        *("global_avg_pool", "global_max_pool"),
    ),
    "networks": ("character_model",),
}
"""The file of each operation."""


def names() -> tuple[str, ...]:
    """The names of all operations, in order; nothing is imported."""
    return tuple(name for members in FAMILIES.values() for name in members)


def operations() -> tuple[Operation, ...]:
    """All operations, in order."""
    return tuple(op for family in FAMILIES for op in _family(family))


def find(name: str) -> Operation | None:
    """The operation of this name; only its family is imported."""
    for family, members in FAMILIES.items():
        if name in members:
            return next(op for op in _family(family) if op.name == name)
    return None


def _family(family: str) -> tuple[Operation, ...]:
    found: tuple[Operation, ...] = import_module(f"{__name__}.{family}").OPERATIONS
    return found
