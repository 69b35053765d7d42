"""Operations of Liger-Kernel as one more way, where its package is installed.

They are Triton kernels, for a GPU alone. Its cross-entropy writes over the logits that it is given,
and its GEGLU is that of tanh: neither is the operation of a row.
"""

from importlib.util import find_spec

from kit.race.row import Function

LIGER = "Liger-Kernel"


def ways() -> dict[str, Function]:
    """Functions of the tensors of a row, by its name; none without the package."""
    if find_spec("liger_kernel") is None:
        return {}
    from liger_kernel.transformers import functional as liger  # type: ignore[import-not-found]

    return {
        "softmax": liger.liger_softmax,
        "relu_squared": liger.liger_relu_squared,
        "group_norm": lambda x, w, b: liger.liger_group_norm(x, w, b, x.shape[1], 2, 1e-5),
        "layer_norm": lambda x, w, b: liger.liger_layer_norm(x, w, b, 1e-5),
        "rms_norm": lambda x, w: liger.liger_rms_norm(x, w, 2**-23, in_place=False),
        "swiglu": lambda x, gate: liger.liger_swiglu(gate, x),
        "kl_div": lambda x, t: liger.liger_kl_div(x, t, reduction="batchmean"),
        "linear_cross_entropy": lambda x, w, t: liger.liger_fused_linear_cross_entropy(x, w, t),
    }
