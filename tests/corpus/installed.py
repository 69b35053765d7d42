"""Hand-written Functions of packages that only the extra `corpus` installs, with examples.

Each row is (expected judgement, function that makes the arguments, reference or None). Packages
are imported by these functions, so that `audits.py` skips the rows of missing packages.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as distributed
from functions import ints, positive, r
from torch import Tensor, nn
from torch.nn import functional as F

Row = tuple[str, Callable[[], tuple[Any, ...]], Any]

ROWS: dict[str, Row] = {}


def through(value: Any, smooth: Any) -> Any:
    """The value of one and the gradient of the other."""
    return value.detach() + smooth - smooth.detach()


def step(x: Any, smooth: Any) -> Any:
    return through((x > 0).to(x.dtype), smooth)


def group() -> Any:
    """A group of this process alone; each collective returns its input."""
    return distributed.group.WORLD


def spd(n: int) -> Tensor:
    x = r(n, n)
    return x @ x.T + n * torch.eye(n)


def rows(package: str, found: dict[str, Row]) -> None:
    ROWS.update({f"{package}.{name}": row for name, row in found.items()})


# -------------------------------------------------------------------- entmax

rows(
    "entmax",
    {
        "activations.SparsemaxFunction": ("right", lambda: (r(3, 5), -1, None), None),
        "activations.Entmax15Function": ("right", lambda: (r(3, 5), -1, None), None),
        "root_finding.EntmaxBisectFunction": (
            "right",
            lambda: (r(3, 5), torch.full((3, 1), 1.4), -1, 50, True),
            None,
        ),
        "root_finding.SparsemaxBisectFunction": ("right", lambda: (r(3, 5), -1, 50, True), None),
        "root_finding.NormmaxBisectFunction": ("right", lambda: (r(3, 5), 2.5, -1, 50), None),
        "root_finding.BudgetBisectFunction": ("right", lambda: (r(3, 5), 2, -1, 50), None),
        **{
            f"losses.{name}LossFunction": (
                "right",
                lambda more=more: (r(4, 5), ints(5, 4), *more),
                None,
            )
            for name, more in {
                "Sparsemax": (None,),
                "SparsemaxBisect": (50,),
                "Entmax15": (None,),
                "EntmaxBisect": (1.5, 50),
                "NormmaxBisect": (2, 50),
            }.items()
        },
    },
)

# -------------------------------------------------------------------- gpytorch, linear_operator


def distance(a: Tensor, b: Tensor) -> Tensor:
    return ((a[:, None] - b) ** 2).sum(-1).sqrt()


def square_distance(a: Tensor, b: Tensor) -> Tensor:
    return ((a[:, None] - b) ** 2).sum(-1)


def tree(matrix: Tensor) -> Any:
    """The representation tree, by which linear_operator rebuilds an operator of a matrix."""
    from linear_operator import to_linear_operator

    return to_linear_operator(matrix).representation_tree()


rows(
    "gpytorch",
    {
        "functions._log_normal_cdf.LogNormalCDF": ("other", lambda: (r(3, 4),), None),
        "functions.rbf_covariance.RBFCovariance": (
            "right",
            lambda: (r(4, 2), r(3, 2), torch.tensor([[0.7]]), square_distance),
            None,
        ),
        "functions.matern_covariance.MaternCovariance": (
            "right",
            lambda: (r(4, 2), r(3, 2), torch.tensor([[0.7]]), 1.5, distance),
            None,
        ),
        "variational.large_batch_variational_strategy.QuadFormDiagonal": (
            "right",
            lambda: (spd(4), r(4, 3)),
            None,
        ),
        "variational.variational_strategy.ComputePredictiveUpdates": (
            "right",
            lambda: (torch.linalg.cholesky(spd(4)), r(4, 3), spd(4) - torch.eye(4), r(4)),
            None,
        ),
        "variational.natural_variational_distribution._NaturalToMuVarSqrt": (
            "other",
            lambda: (r(4), -spd(4)),
            None,
        ),
        "variational.tril_natural_variational_distribution._TrilNaturalToMuVarSqrt": (
            "other",
            lambda: (r(4), torch.linalg.cholesky(spd(4))),
            None,
        ),
        "variational.ciq_variational_strategy._NgdInterpTerms": (
            "other",
            lambda: (r(4, 3), r(4), -spd(4)),
            None,
        ),
    },
)


def _operated() -> dict[str, Row]:
    def made(*before: Any) -> Callable[[], tuple[Any, ...]]:
        return lambda: (tree(spd(4)), *before, spd(4))

    return {
        "_matmul.Matmul": ("right", made(r(4, 3)), lambda t, b, a: a @ b),
        "_solve.Solve": (
            "right",
            made(False, r(4, 3)),
            lambda t, left, b, a: torch.linalg.solve((a + a.mT) / 2, b),
        ),
        "_inv_quad.InvQuad": (
            "right",
            made(r(4, 3)),
            lambda t, b, a: (b * torch.linalg.solve((a + a.mT) / 2, b)).sum(-2),
        ),
        "_pivoted_cholesky.PivotedCholesky": ("right", made(3, 1e-6), None),
        "_sqrt_inv_matmul.SqrtInvMatmul": ("right", made(r(4, 3), r(2, 4)), None),
        "_dsmm.DSMM": (
            "right",
            lambda: (torch.eye(3, 4).to_sparse(), r(4, 2)),
            lambda sparse, dense: torch.eye(3, 4, dtype=dense.dtype) @ dense,
        ),
    }


rows("linear_operator.functions", _operated())

# -------------------------------------------------------------------- megatron


rows(
    "megatron.core.fusions",
    {
        "fused_bias_gelu.GeLUFunction": ("right", lambda: (r(3, 4), r(4)), None),
        "fused_bias_swiglu.BiasSwiGLUFunction": (
            "right",
            lambda: (r(3, 8), r(8), False, False),
            None,
        ),
        "fused_bias_swiglu.SwiGLUFunction": ("right", lambda: (r(3, 8), False, False), None),
        "fused_bias_swiglu.WeightedSwiGLUFunction": (
            "right",
            lambda: (r(3, 8), positive(3, 1), False),
            None,
        ),
        "fused_bias_geglu.BiasGeGLUFunction": ("right", lambda: (r(3, 8), r(8)), None),
        "fused_bias_geglu.GeGLUFunction": ("right", lambda: (r(3, 8),), None),
        "fused_bias_geglu.WeightedQuickGeGLUFunction": (
            "right",
            lambda: (r(3, 8), positive(3, 1), False, torch.tensor(0.0)),
            None,
        ),
        "fused_bias_geglu.WeightedBiasQuickGeGLUFunction": (
            "right",
            lambda: (r(3, 8), r(8), positive(3, 1), False, torch.tensor(0.0)),
            None,
        ),
        "fused_weighted_squared_relu.WeightedSquaredReLUFunction": (
            "right",
            lambda: (r(3, 4), positive(3, 1)),
            None,
        ),
        "fused_cross_entropy._VocabParallelCrossEntropy": (
            "other",
            lambda: (r(3, 2, 5), ints(5, 3, 2), group()),
            None,
        ),
    },
)


def parallel() -> None:
    """Initialize Megatron's groups with this process alone."""
    from megatron.core import parallel_state

    if not parallel_state.model_parallel_is_initialized():
        parallel_state.initialize_model_parallel()


def in_parallel(*example: Any) -> tuple[Any, ...]:
    parallel()
    return example


rows(
    "megatron.core.tensor_parallel",
    {
        **{
            f"mappings.{name}": ("right", lambda: (r(3, 4), group()), lambda x, group: x * 1)
            for name in (
                "_CopyToModelParallelRegion",
                "_ReduceFromModelParallelRegion",
                "_ScatterToModelParallelRegion",
                "_GatherFromModelParallelRegion",
                "_ScatterToSequenceParallelRegion",
                "_AllGatherFromTensorParallelRegion",
                "_ReduceScatterToTensorParallelRegion",
            )
        },
        "mappings._GatherFromSequenceParallelRegion": (
            "right",
            lambda: (r(3, 4), group(), True, None, False),
            lambda x, *more: x * 1,
        ),
        "mappings._ReduceScatterToSequenceParallelRegion": (
            "right",
            lambda: (r(3, 4), group(), None, False),
            lambda x, *more: x * 1,
        ),
        "mappings._AllToAll": (
            "right",
            lambda: (group(), r(3, 4), None, None),
            lambda group, x, *more: x * 1,
        ),
        "cross_entropy._VocabParallelCrossEntropy": (
            "fragile",
            lambda: in_parallel(r(3, 2, 5), ints(5, 3, 2), 0.1),
            None,
        ),
        "layers.LinearWithFrozenWeight": (
            "right",
            lambda: (r(3, 4), r(5, 4), r(5), False, group()),
            None,
        ),
    },
)


rows(
    "megatron.core",
    {
        "transformer.moe.moe_utils.MoEAuxLossAutoScaler": ("other", lambda: (r(3, 4), r(2)), None),
        "transformer.multi_token_prediction.MTPLossAutoScaler": (
            "other",
            lambda: (r(3, 4), r(2)),
            None,
        ),
        "transformer.experimental_attention_variant.dsa.DSAIndexerLossAutoScaler": (
            "other",
            lambda: (r(3, 4), r(2)),
            None,
        ),
        "utils.MakeViewlessTensor": ("right", lambda: (r(3, 4), True), None),
    },
)

# -------------------------------------------------------------------- memcnn, ..


def layer(n: int) -> nn.Module:
    torch.manual_seed(n)
    return nn.Sequential(nn.Linear(n, n), nn.Tanh())


def coupled(*modules: nn.Module) -> tuple[Any, ...]:
    parameters = [p for module in modules for p in module.parameters()]
    return (r(3, 4), *modules, *parameters)


def affine_pair() -> tuple[nn.Module, nn.Module]:
    """Two modules that return a scale and a shift, for the affine coupling."""
    from memcnn import AffineAdapterNaive

    return AffineAdapterNaive(layer(2)), AffineAdapterNaive(layer(2))


def plus(x: Any, made: Any, back: bool) -> Any:
    return x - made if back else x + made


def affine(x: Any, made: Any, back: bool) -> Any:
    scale, shift = made
    return (x - shift) / scale if back else x * scale + shift


def couple(x: Any, f: Any, g: Any, join: Any) -> Any:
    a, b = x.chunk(2, 1)
    a = join(a, f(b), False)
    return torch.cat((a, join(b, g(a), False)), 1)


def uncouple(y: Any, f: Any, g: Any, join: Any) -> Any:
    a, b = y.chunk(2, 1)
    b = join(b, g(a), True)
    return torch.cat((join(a, f(b), True), b), 1)


COUPLINGS = (
    ("Function", "right", False),
    ("InverseFunction", "wrong", True),  # the halves of the gradient are swapped
    ("Function2", "right", False),  # the affine one drops the scale, and so does its inverse
    ("InverseFunction2", "right", True),
)

rows(
    "memcnn.models",
    {
        **{
            f"additive.AdditiveBlock{name}": (
                expected,
                lambda: coupled(layer(2), layer(2)),
                lambda x, f, g, *more, back=back: (uncouple if back else couple)(x, f, g, plus),
            )
            for name, expected, back in COUPLINGS
        },
        **{
            f"affine.AffineBlock{name}": (
                "wrong" if name.endswith("2") else expected,
                lambda: coupled(*affine_pair()),
                lambda x, f, g, *more, back=back: (uncouple if back else couple)(x, f, g, affine),
            )
            for name, expected, back in COUPLINGS
        },
    },
)


def reversible() -> tuple[Any, ...]:
    from memory_efficient_attention_pytorch.reversible import ReversibleBlock

    block = ReversibleBlock(layer(3), layer(3))
    return r(2, 4, 6), nn.ModuleList([block]), [{"f_args": {}, "g_args": {}}]


def unit(*shape: int) -> Tensor:
    return F.normalize(r(*shape), dim=-1)


rows(
    "memory_efficient_attention_pytorch",
    {
        "reversible._ReversibleFunction": ("right", reversible, None),
        "flash_attention.FlashAttentionFunction": (
            "right",
            lambda: (*(r(1, 2, n, 4) for n in (5, 5, 5)), None, True, 2, 2),
            lambda q, k, v, mask, causal, *more: F.scaled_dot_product_attention(
                q, k, v, is_causal=causal
            ),
        ),
        "cosine_sim_flash_attention.FlashAttentionFunction": (
            "other",
            lambda: (
                *(unit(1, 2, 5, 4), unit(1, 2, 5, 4).flip(-1), r(1, 2, 5, 4)),
                *(None, 2, True, 2, 2),
            ),
            lambda q, k, v, mask, scale, causal, *more: F.scaled_dot_product_attention(
                q, k, v, is_causal=causal, scale=scale
            ),
        ),
    },
)

# -------------------------------------------------------------------- monai, norse, pyro, ..

rows(
    "monai",
    {
        "networks.blocks.activation.SwishImplementation": ("right", lambda: (r(3, 4),), None),
        "visualize.gradient_based._AutoGradReLU": ("other", lambda: (r(3, 4),), None),
    },
)

rows(
    "norse.torch.functional",
    {
        "superspike.SuperSpike": (
            "right",
            lambda: (r(3, 5), 10.0),
            lambda x, a: step(x, x / (1 + a * x.abs())),
        ),
        "threshold.HeaviErfc": (
            "right",
            lambda: (r(3, 5), torch.tensor(2.0)),
            lambda x, k: step(x, torch.erf(k.detach() * x) / k.detach()),
        ),
        "threshold.HeaviTanh": (
            "right",
            lambda: (r(3, 5), torch.tensor(2.0)),
            lambda x, k: step(x, torch.tanh(k.detach() * x) / k.detach()),
        ),
        "threshold.HeaviCirc": (
            "right",
            lambda: (r(3, 5), torch.tensor(2.0)),
            lambda x, a: step(x, a.detach() * x / torch.sqrt(a.detach() ** 2 + x * x)),
        ),
        "threshold.HeaviTent": (
            "right",
            lambda: (r(3, 5), torch.tensor(2.0)),
            lambda x, a: step(x, a.detach() * x.clamp(-1, 1) * (1 - x.clamp(-1, 1).abs() / 2)),
        ),
        "threshold.Logistic": ("other", lambda: (r(3, 5), torch.tensor(2.0)), None),
        "threshold.CircDist": ("other", lambda: (r(3, 5), torch.tensor(2.0)), None),
    },
)


def hard(p: Tensor) -> Tensor:
    return F.one_hot(p.argmax(-1), p.shape[-1]).to(p.dtype)


rows(
    "pyro",
    {
        "ops.special._SafeLog": ("right", lambda: (positive(3, 4),), None),
        "contrib.oed.eig._EwmaLogFn": (
            "right",
            lambda: (positive(3, 4), positive(4)),
            lambda x, mean: through(x.log(), x / mean.detach()),
        ),
        "distributions.relaxed_straight_through.QuantizeCategorical": (
            "right",
            lambda: (r(3, 5).softmax(-1),),
            lambda p: through(hard(p), p),
        ),
        "distributions.relaxed_straight_through.QuantizeBernoulli": (
            "right",
            lambda: (r(3, 5).sigmoid(),),
            lambda p: through(p.round(), p),
        ),
    },
)


def slope(t: Any, x: Any) -> Any:
    return torch.stack((x[1], -x[0]))


def event(t: Any, x: Any) -> Any:
    return (x * x * x).sum() - 0.1 * t


def rerouted(slope: Any, event: Any, t: Any, x: Any) -> Any:
    """A change of the state moves the event in time, and the state along the flow."""
    flow = slope(t, x).detach()
    fixed = x.detach().requires_grad_()
    with torch.enable_grad():
        (along,) = torch.autograd.grad(event(t.detach(), fixed), fixed)
    rate = -0.1 + (along * flow).sum()
    moved = -(along * (x - x.detach())).sum() / rate
    return t.detach() + moved, x + flow * moved


rows(
    "torchdiffeq._impl",
    {
        "misc._StitchGradient": (
            "right",
            lambda: (r(3, 4), r(3, 4) + 1e-3),
            lambda x, out: through(out, x),
        ),
        "odeint.ImplicitFnGradientRerouting": (
            "right",
            lambda: (slope, event, torch.tensor(0.5), torch.tensor([0.7, 0.4])),
            rerouted,
        ),
        "rk_common._UncheckedAssign": ("other", lambda: (r(3, 4), r(4), 1), None),
    },
)

# -------------------------------------------------------------------- snntorch


def spike_rate(x: Any, beta: Any, slope: Any) -> Any:
    apart = x - 1
    return step(x, slope / beta * apart.sign() * (1 - torch.exp(-beta * apart.abs())))


def fast(x: Any, slope: Any) -> Any:
    return x / (1 + slope * x.abs())


def fast_slope(x: Any, g: Any, spikes: Any) -> Any:
    return g / (1 + 25 * x.abs()) ** 2


def arctan(x: Any, alpha: Any) -> Any:
    return step(x, torch.atan(math.pi / 2 * alpha * x) / math.pi)


rows(
    "snntorch",
    {
        "surrogate.StraightThroughEstimator": ("right", lambda: (r(3, 5),), lambda x: step(x, x)),
        "surrogate.Triangular": (
            "right",
            lambda: (r(3, 5), 1.5),
            lambda x, a: step(x, -a * x.abs()),
        ),
        "surrogate.FastSigmoid": ("right", lambda: (r(3, 5), 25), lambda x, a: step(x, fast(x, a))),
        "surrogate.ATan": ("right", lambda: (r(3, 5), 2.0), arctan),
        "surrogate.Heaviside": ("right", lambda: (r(3, 5),), lambda x: step(x, x.relu())),
        "surrogate.Sigmoid": (
            "fragile",
            lambda: (r(3, 5), 5),
            lambda x, a: step(x, torch.sigmoid(a * x)),
        ),
        "surrogate.SpikeRateEscape": ("right", lambda: (r(3, 5), 1, 25), spike_rate),
        "surrogate.StochasticSpikeOperator": ("other", lambda: (r(3, 5), 0, 0.2), None),
        "surrogate.LeakySpikeOperator": ("wrong", lambda: (r(3, 5), 0.1), None),
        "surrogate.SparseFastSigmoid": (
            "right",
            lambda: (r(3, 5), 25, -0.5),
            lambda x, a, b: step(x, torch.where(x > b, fast(x, a), 0)),
        ),
        "surrogate.CustomSurrogate": (
            "right",
            lambda: (r(3, 5), fast_slope),
            lambda x, f: step(x, fast(x, 25)),
        ),
        "functional.quant.StateQuant": (
            "right",
            lambda: (r(3, 5), torch.linspace(-2, 2, 9)),
            lambda x, levels: through(levels[(x[..., None] - levels).abs().argmin(-1)], x),
        ),
        "functional.loss.SpikeTime.Tolerance": (
            "right",
            lambda: (positive(3, 4), positive(3, 4) + 0.1, 0.5),
            lambda x, target, apart: through(torch.where((x - target).abs() < apart, target, x), x),
        ),
        **{
            f"_neurons.{name}.ATan": ("right", lambda: (r(3, 5), 2.0), arctan)
            for name in (
                "leakyparallel.LeakyParallel",
                "leakyunroll.LeakyParallel",
                "leakykernel.LeakyKernel",
            )
        },
    },
)
