"""Layers and losses of timm."""

import torchvision_schemas  # noqa: F401
from functions import add, ints, positive, r
from timm.layers import (
    AttentionPool2d,
    AttentionPoolLatent,
    BlurPool2d,
    ConvMlp,
    DepthToSpace,
    EcaModule,
    EffectiveSEModule,
    EvoNorm2dS0,
    FilterResponseNormTlu2d,
    GatedMlp,
    GatherExcite,
    GlobalContext,
    GlobalResponseNormMlp,
    GluMlp,
    GroupNorm1,
    LayerNorm2d,
    LayerScale,
    LayerScale2d,
    Mlp,
    PatchEmbed,
    RmsNorm,
    RmsNorm2d,
    SEModule,
    SimpleNorm,
    SpaceToDepth,
    SplitAttn,
    StdConv2d,
    SwiGLU,
    apply_rot_embed,
    apply_rot_embed_cat,
    hard_mish,
    quick_gelu,
)
from timm.layers.adaptive_avgmax_pool import adaptive_avgmax_pool2d
from timm.layers.cbam import CbamModule
from timm.layers.grn import GlobalResponseNorm
from timm.loss import (
    AsymmetricLossMultiLabel,
    BinaryCrossEntropy,
    JsdCrossEntropy,
    LabelSmoothingCrossEntropy,
    SoftTargetCrossEntropy,
)
from timm.models.convnext import ConvNeXtBlock
from timm.models.vision_transformer import Attention, Block


def timm(module: object, *example: object) -> None:
    """A module or function by the name that timm gives it."""
    name = getattr(module, "__name__", type(module).__name__)
    add(f"timm.{name}", module.eval() if hasattr(module, "eval") else module, *example)


IMAGE = r(2, 8, 5, 7)
TOKENS = r(2, 5, 6)

timm(LayerNorm2d(8), IMAGE)
timm(GroupNorm1(8), IMAGE)
timm(RmsNorm(6), TOKENS)
timm(RmsNorm2d(8), IMAGE)
timm(SimpleNorm(6), TOKENS)
timm(GlobalResponseNorm(6), r(2, 5, 7, 6))
timm(FilterResponseNormTlu2d(8), IMAGE)
timm(EvoNorm2dS0(8, groups=2), IMAGE)
timm(LayerScale(6), TOKENS)
timm(LayerScale2d(8), IMAGE)

timm(Mlp(6, 10), TOKENS)
timm(GluMlp(6, 10), TOKENS)
timm(SwiGLU(6, 10), TOKENS)
timm(GatedMlp(6, 10), TOKENS)
timm(ConvMlp(8, 10), IMAGE)
timm(GlobalResponseNormMlp(6, 10), r(2, 5, 7, 6))
timm(hard_mish, r(3, 5))
timm(quick_gelu, r(3, 5))

timm(SEModule(8, rd_channels=4), IMAGE)
timm(EffectiveSEModule(8), IMAGE)
timm(EcaModule(8), IMAGE)
timm(GatherExcite(8, use_mlp=False), IMAGE)
timm(GlobalContext(8, rd_channels=4), IMAGE)
timm(CbamModule(8, rd_channels=4), IMAGE)
timm(SplitAttn(8, rd_channels=4), IMAGE)
timm(AttentionPool2d(8, feat_size=3, num_heads=2), r(2, 8, 3, 3))
timm(AttentionPoolLatent(6, num_heads=2), TOKENS)
timm(Attention(6, num_heads=2), TOKENS)
timm(Block(6, num_heads=2), TOKENS)
timm(apply_rot_embed, r(2, 3, 5, 6), r(5, 6), r(5, 6))
timm(apply_rot_embed_cat, r(2, 3, 5, 6), r(5, 12))

timm(StdConv2d(4, 6, 3, padding=1), r(2, 4, 5, 7))
timm(BlurPool2d(8), IMAGE)
timm(adaptive_avgmax_pool2d, IMAGE)
timm(ConvNeXtBlock(8), IMAGE)
timm(PatchEmbed(8, 4, 3, 6), r(2, 3, 8, 8))
timm(SpaceToDepth(4), r(2, 3, 4, 8))
timm(DepthToSpace(2), IMAGE)

timm(LabelSmoothingCrossEntropy(0.1), r(4, 3), ints(3, 4))
timm(SoftTargetCrossEntropy(), r(4, 3), positive(4, 3))
timm(BinaryCrossEntropy(0.1), r(4, 3), ints(3, 4))
timm(AsymmetricLossMultiLabel(), r(4, 3), positive(4, 3))
timm(JsdCrossEntropy(), r(6, 4), ints(4, 6))
