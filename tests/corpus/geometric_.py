"""Convolutions, norms and functions of torch-geometric."""

import torch
from functions import add, ints, positive, r
from torch import nn
from torch_geometric.nn import (
    DenseGCNConv,
    DenseSAGEConv,
    EdgeConv,
    GATConv,
    GATv2Conv,
    GCNConv,
    GINConv,
    GraphConv,
    GraphNorm,
    InstanceNorm,
    LayerNorm,
    MeanSubtractionNorm,
    MessageNorm,
    PairNorm,
    PositionalEncoding,
    ResGatedGraphConv,
    SAGEConv,
    SGConv,
    TransformerConv,
    dense_diff_pool,
    global_add_pool,
    global_max_pool,
    global_mean_pool,
)
from torch_geometric.nn.models.schnet import GaussianSmearing, ShiftedSoftplus
from torch_geometric.utils import scatter, softmax, to_dense_adj

EDGES = torch.stack([ints(5, 8), ints(4, 8)])
BATCH = torch.tensor([0, 0, 1, 1, 1])
NODES = r(5, 4)


def pyg(module: object, *example: object) -> None:
    """A module or function by the name that torch-geometric gives it."""
    name = getattr(module, "__name__", type(module).__name__)
    add(f"pyg.{name}", module.eval() if hasattr(module, "eval") else module, *example)


pyg(GCNConv(4, 6), NODES, EDGES)
pyg(GraphConv(4, 6), NODES, EDGES)
pyg(SAGEConv(4, 6), NODES, EDGES)
pyg(GINConv(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))), NODES, EDGES)
pyg(EdgeConv(nn.Linear(8, 6)), NODES, EDGES)
pyg(GATConv(4, 3, heads=2), NODES, EDGES)
pyg(GATv2Conv(4, 3, heads=2), NODES, EDGES)
pyg(TransformerConv(4, 3, heads=2), NODES, EDGES)
pyg(ResGatedGraphConv(4, 6), NODES, EDGES)
pyg(SGConv(4, 6), NODES, EDGES)
pyg(DenseGCNConv(4, 6), r(2, 5, 4), r(2, 5, 5))
pyg(DenseSAGEConv(4, 6), r(2, 5, 4), r(2, 5, 5))

add("pyg.GCNConv.message", GCNConv(4, 6).message, r(8, 4), r(8))
add("pyg.SAGEConv.message", SAGEConv(4, 6).message, r(8, 4))
add("pyg.scatter_sum", lambda x, i: scatter(x, i, dim=0, dim_size=5), r(8, 4), ints(5, 8))
add("pyg.scatter_mean", lambda x, i: scatter(x, i, 0, 5, "mean"), r(8, 4), ints(5, 8))
add("pyg.scatter_max", lambda x, i: scatter(x, i, 0, 5, "max"), r(8, 4), ints(5, 8))
add("pyg.softmax", lambda x, i: softmax(x, i, num_nodes=5), r(8, 3), ints(5, 8))
add("pyg.global_mean_pool", lambda x, i: global_mean_pool(x, i, 2), NODES, BATCH)
add("pyg.global_add_pool", lambda x, i: global_add_pool(x, i, 2), NODES, BATCH)
add("pyg.global_max_pool", lambda x, i: global_max_pool(x, i, 2), NODES, BATCH)
add("pyg.global_mean_pool_of_one", lambda x: global_mean_pool(x, None), NODES)
add("pyg.to_dense_adj", lambda e, a: to_dense_adj(e, None, a, 5), EDGES, positive(8))

pyg(PairNorm(), NODES)
pyg(GraphNorm(4), NODES)
pyg(LayerNorm(4), NODES)
add("pyg.LayerNorm_node", LayerNorm(4, mode="node").eval(), NODES)
pyg(InstanceNorm(4), NODES)
pyg(MeanSubtractionNorm(), NODES)
pyg(MessageNorm(learn_scale=True), NODES, r(5, 4))
pyg(GaussianSmearing(0.0, 5.0, 7), positive(5))
pyg(PositionalEncoding(6), positive(5))
pyg(ShiftedSoftplus(), NODES)
pyg(dense_diff_pool, r(2, 5, 4), r(2, 5, 5), r(2, 5, 3))
