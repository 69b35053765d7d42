"""Hand-written autograd.Functions of installed packages, audited, as a table.

python tests/corpus/audits.py
python tests/corpus/audits.py --only '*Swish*' --full   # the whole reports

What is expected was found by hand, and by proofs.py where gradcheck can judge: ``right``,
``wrong``, ``fragile`` where it raises or fails at values far from the example's, or ``other`` where
the backward is another function's on purpose, is an approximation, or writes into a tensor that it
is given for its result. Rows of packages that are not installed are skipped.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import reduce
from importlib import import_module
from typing import Any

import installed
import torch
import torch.distributed as distributed
from functions import ints, positive, r
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import derive

os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # Functions are judged as they are written

with suppress(ImportError):
    import torchvision_schemas  # noqa: F401

ORDER = torch.stack([torch.randperm(5, generator=torch.Generator().manual_seed(n)) for n in (0, 1)])
UNDONE = ORDER.argsort(-1)

EDGES = torch.tensor([[0, 0, 1, 2, 3], [1, 2, 0, 1, 2]])
"""None of them twice."""


def mul(x: Any, y: Any) -> Any:
    return x * y


def cube(x: Any) -> Any:
    return x**3, 3 * x**2


def unsorted(x: Any, dim: int) -> Any:
    """What NumpySort computes: it makes the order, and returns x as it is."""
    order = x.argsort(dim)
    return x * 1, order, order.argsort(dim)


def take(x: Any, order: Any, undone: Any, dim: int) -> Any:
    return torch.take_along_dim(x, order, dim)


class Sink:
    """What wrappers of modules ask for beside the tensors that they pass on."""

    _ddp_sink_clone = True
    static_graph = False
    reducer = None

    @staticmethod
    def of() -> Sink:
        return Sink()

    def _pre_backward(self, grad: Any) -> Any:
        return grad

    def post_backward(self) -> None:
        """Nothing is left to do."""


def edge_index() -> Any:
    """A graph of five edges, where torch-geometric is installed."""
    try:
        from torch_geometric import EdgeIndex
    except ModuleNotFoundError:
        return None
    made = EdgeIndex([[0, 1, 1, 2, 3], [1, 0, 2, 1, 3]], sparse_size=(4, 4), sort_order="row")
    return made.fill_cache_()


distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
GROUP, SUM = distributed.group.WORLD, distributed.ReduceOp.SUM
"""A group of this process alone, in which every collective returns what it is given."""

AUDITS: dict[str, tuple[str, Any, Any]] = {
    # transformers
    "transformers.models.bloom.modeling_bloom.GeLUFunction": ("right", (r(3, 5),), None),
    "transformers.models.recurrent_gemma.modeling_recurrent_gemma.SqrtBoundDerivative": (
        "right",
        (positive(3, 5),),
        None,
    ),
    "transformers.models.sew_d.modeling_sew_d.XSoftmax": (
        "right",
        (r(2, 3, 5), ints(2, 2, 3, 5), -1),
        None,
    ),
    "transformers.models.sew_d.modeling_sew_d.XDropout": ("right", (r(3, 4), 0.25), None),
    "transformers.models.yoso.modeling_yoso.YosoCumulation": (
        "other",
        (
            *(torch.ones(2, 3), torch.ones(2, 5)),
            *(torch.nn.functional.normalize(r(2, n, 4), dim=-1) for n in (3, 5)),
            *(r(2, 5, 6), {"hash_code_len": 3}),
        ),
        None,
    ),
    "transformers.models.ibert.quant_modules.floor_ste": ("other", (r(3, 5),), None),
    "transformers.models.ibert.quant_modules.round_ste": ("other", (r(3, 5),), None),
    "transformers.models.ibert.quant_modules.SymmetricQuantFunction": (
        "other",
        (r(3, 5), 8, False, torch.tensor([0.1])),
        None,
    ),
    "transformers.models.phimoe.modeling_phimoe.PhimoeMultiplier": (
        "other",
        (r(3, 4), r(3, 1), ints(4, 3, 1), r(3, 4).softmax(-1), torch.ones(3, 1)),
        None,
    ),
    "transformers.models.reformer.modeling_reformer.ReverseSort": (
        "right",
        (r(2, 2, 5, 3), r(2, 2, 5), ORDER.repeat(2, 1, 1), UNDONE.repeat(2, 1, 1)),
        None,
    ),
    "transformers.loss.loss_lsd._InputOnlyGrad": ("right", (r(3, 5), torch.sin), None),
    # timm
    **{
        f"timm.layers.activations_me.{name}AutoFn": ("right", (4 * r(3, 5),), None)
        for name in ("Swish", "Mish", "HardSigmoid", "HardSwish", "HardMish")
    },
    # kornia
    "kornia.losses.focal._TargetLogSoftmax": (
        "right",
        (r(2, 3, 4), ints(3, 2, 1, 4), ints(2, 2, 1, 4).bool()),
        None,
    ),
    "kornia.geometry.epipolar.essential._NullSpaceBasis": ("other", (r(2, 6, 9),), None),
    # torch-geometric
    "torch_geometric.utils.cross_entropy.SparseCrossEntropy": (
        "fragile",
        (r(4, 3), EDGES, None),
        None,
    ),
    "torch_geometric.edge_index._TorchSPMM": (
        "right",
        (edge_index(), r(4, 7), None, "sum", False),
        lambda graph, x, value, reduce, turned: torch.zeros(4, x.shape[1], dtype=x.dtype).index_add(
            0, graph[0], x[graph[1]]
        ),
    ),
    # torch
    "torch.nn.modules._functions.CrossMapLRN2d": ("wrong", (r(2, 7, 3, 4), 3), None),
    "torch.autograd._functions.tensor.Resize": ("right", (r(3, 4), (4, 3)), None),
    "torch.ao.quantization.fx._decomposed.FakeQuantPerChannel": (
        "other",
        (r(3, 4), positive(3), ints(2, 3).int(), 0, -8, 7),
        None,
    ),
    "torch._export.db.examples.autograd_function.MyAutogradFunction": ("wrong", (r(3, 4),), None),
    "torch.autograd._functions.tensor.Type": ("right", (r(3, 4), "torch.DoubleTensor"), None),
    "torch.nn.modules._functions.BackwardHookFunction": ("right", (r(3, 4), r(2, 3)), None),
    "torch.nn.parallel.distributed._DDPSink": ("right", (Sink.of, r(3, 4), r(2)), None),
    "torch.distributed.fsdp._fully_shard._fsdp_state.RegisterPreBackwardFunction": (
        "right",
        (Sink(), r(3, 4)),
        None,
    ),
    "torch.distributed.fsdp._fully_shard._fsdp_param_group.RegisterPostBackwardFunction": (
        "right",
        (Sink(), r(3, 4), r(2)),
        None,
    ),
    "torch._inductor.test_operators.Realize": ("right", (r(3, 4),), None),
    "torch._dynamo._trace_wrapped_higher_order_op.ModIndex": (
        "right",
        (r(3, 4), [torch.tensor([0, 1, 1]), torch.tensor([1, 0, 0])]),
        None,
    ),
    "torch._higher_order_ops.cond.CondAutogradOp": (
        "right",
        (torch.tensor(True), lambda x, y: (x.sin() * y,), lambda x, y: (x + y,), r(3, 4), r(3, 4)),
        lambda chosen, a, b, x, y: torch.where(chosen, x.sin() * y, x + y),
    ),
    "torch._higher_order_ops.map.MapAutogradOp": (
        "right",
        (lambda x, w: (x.sin() * w,), 1, r(3, 4), r(4)),
        lambda f, count, x, w: x.sin() * w,
    ),
    "torch._higher_order_ops.associative_scan.AssociativeScanAutogradOp": (
        "right",
        (lambda a, b: (a * b,), 1, 0, r(3, 4)),
        lambda f, count, more, x: x.cumprod(0),
    ),
    "torch._higher_order_ops.while_loop.WhileLoopAutogradOp": (
        "right",
        (lambda i, x: i < 2, lambda i, x: (i + 1, x.sin()), 2, 0, torch.tensor(0), r(3, 4)),
        lambda goes_on, step, count, more, i, x: (i + 2, x.sin().sin()),
    ),
    **{
        f"torch.distributed.nn.functional.{name}": found
        for name, found in {
            "_AllGather": ("wrong", (GROUP, r(3, 4)), lambda group, x: x * 1),
            "_AllReduce": ("right", (SUM, GROUP, r(3, 4)), lambda op, group, x: x * 1),
            "_AlltoAll": (
                "right",
                (GROUP, [torch.empty(3, 4)], r(3, 4)),
                lambda group, made, x: x * 1,
            ),
            "_AlltoAllSingle": (
                "other",
                (GROUP, torch.empty(3, 4), None, None, r(3, 4)),
                lambda group, made, ours, theirs, x: x * 1,
            ),
            "_Broadcast": ("right", (0, GROUP, r(3, 4)), lambda source, group, x: x * 1),
            # reads what lies between the elements of a strided cotangent
            "_Gather": ("wrong", (0, GROUP, r(3, 4)), lambda target, group, x: x * 1),
            "_Reduce": ("right", (0, SUM, GROUP, r(3, 4)), lambda target, op, group, x: x * 1),
            "_Reduce_Scatter": (
                "other",
                (SUM, GROUP, torch.empty(3, 4), r(3, 4)),
                lambda op, group, made, x: x * 1,
            ),
            "_Scatter": ("right", (0, GROUP, r(3, 4)), lambda source, group, x: x * 1),
        }.items()
    },
    "torch.utils.checkpoint.CheckpointFunction": ("right", (torch.sin, False, r(3, 4)), None),
    **{
        f"torch.testing._internal.autograd_function_db.{name}": found
        for name, found in {
            "NumpyCube": ("right", (r(3, 4),), cube),
            "NumpyCubeNotComposable": ("wrong", (r(3, 4),), lambda x: (x**3, x.detach() * 1)),
            "CubeGenVmap": ("wrong", (r(3, 4),), None),
            "NumpyMul": ("right", (r(3, 4), r(3, 4)), mul),
            "MulGenVmap": ("right", (r(3, 4), r(3, 4)), None),
            "NumpyExp_": ("right", (r(3, 4),), torch.exp),
            "NumpySort": ("wrong", (r(3, 5), 1), unsorted),
            "NumpyTake": ("right", (r(2, 5), ORDER, UNDONE, 1), take),
            "SortGenVmap": ("right", (r(3, 5), 1), None),
            "TakeGenVmap": ("right", (r(2, 5), ORDER, UNDONE, 1), None),
            "Select": ("right", (r(3, 5), 2), None),
            "SelectGenVmap": ("right", (r(3, 5), 2), None),
            "ScaleGradGenVmap": ("wrong", (r(3, 5),), None),
            "ZeroGradientsGenVmap": ("wrong", (r(3, 5), r(3, 5)), None),
            "ForwardHasDefaultArgs": ("right", (r(3, 5),), None),
        }.items()
    },
}
"""What is expected, the arguments or a function that makes them, a reference or None."""

AUDITS.update(installed.ROWS)


def function_of(name: str) -> Any:
    """The class of a dotted name, which may stand in another class."""
    module, classes = name, []
    while True:
        module, _, own = module.rpartition(".")
        classes.insert(0, own)
        try:
            found = import_module(module)
        except ModuleNotFoundError as error:
            if error.name != module or "." not in module:
                raise
        else:
            return reduce(getattr, classes, found)


def example_of(given: Any) -> tuple[Any, ...]:
    """The arguments of a row."""
    return given() if callable(given) else given


def judged(name: str) -> tuple[str, str, Any]:
    """(the judgement, why, the report) of one Function."""
    _, example, reference = AUDITS[name]
    try:
        function = function_of(name)
        report = derive.audit(function, *example_of(example), reference=reference)
    except ModuleNotFoundError as error:
        return "not installed", str(error), None
    except derive.DeriveError as error:
        return "not judged", str(error), None
    except Exception as error:
        return "crash", f"{type(error).__name__}: {error}", None
    told = [f"{row.input}: {row.wrong}" for row in report.rows if not row.right]
    return report.verdict, "; ".join(told or report.fragile or report.remarks), report


def rows(only: str) -> Iterator[tuple[str, str, str, str, Any]]:
    for name, (expected, _, _) in AUDITS.items():
        if fnmatchcase(name, only):
            yield (name, expected, *judged(name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="*")
    parser.add_argument("--full", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    console, table, counts = (
        Console(),
        Table("Function", "judgement", "expected", "reason"),
        Counter(),
    )
    console.width = max(console.width, 160)
    skipped = Counter()
    for name, expected, judgement, reason, report in rows(given.only):
        if judgement == "not installed":
            skipped[reason] += 1
            continue
        counts[judgement, expected] += 1
        table.add_row(*map(escape, (name, judgement, expected, " ".join(reason.split()))))
        if given.full and report is not None:
            console.print(str(report), markup=False, highlight=False)
    console.print(table)
    for (judgement, expected), count in sorted(counts.items()):
        console.print(f"{count} {judgement}, expected {expected}", highlight=False)
    for reason, count in sorted(skipped.items()):
        console.print(f"{count} skipped, not installed: {reason}", markup=False, highlight=False)


if __name__ == "__main__":
    main()
