"""Losses and decoder blocks of segmentation-models-pytorch."""

import torchvision_schemas  # noqa: F401
from functions import add, ints, r
from segmentation_models_pytorch.base.modules import SCSEModule
from segmentation_models_pytorch.decoders.fpn.decoder import Conv3x3GNReLU
from segmentation_models_pytorch.losses import (
    DiceLoss,
    FocalLoss,
    JaccardLoss,
    LovaszLoss,
    MCCLoss,
    SoftBCEWithLogitsLoss,
    SoftCrossEntropyLoss,
    TverskyLoss,
)
from segmentation_models_pytorch.losses._functional import (
    focal_loss_with_logits,
    soft_dice_score,
    soft_jaccard_score,
    soft_tversky_score,
    wing_loss,
)


def smp(name: str, module: object, *example: object) -> None:
    add(f"smp.{name}", module.eval() if hasattr(module, "eval") else module, *example)


MAP = r(2, 1, 4, 5)
CLASSES = r(2, 3, 4, 5)
MASK = ints(2, 2, 1, 4, 5).float()
LABELS = ints(3, 2, 4, 5)

smp("DiceLoss", DiceLoss("binary"), MAP, MASK)
smp("DiceLoss_multiclass", DiceLoss("multiclass"), CLASSES, LABELS)
smp("JaccardLoss", JaccardLoss("binary"), MAP, MASK)
smp("TverskyLoss", TverskyLoss("multilabel", alpha=0.3, beta=0.7), CLASSES, CLASSES.sigmoid())
smp("FocalLoss", FocalLoss("binary"), MAP, MASK)
smp("FocalLoss_multiclass", FocalLoss("multiclass"), CLASSES, LABELS)
smp("LovaszLoss", LovaszLoss("binary"), MAP, MASK)
smp("MCCLoss", MCCLoss(), MAP, MASK)
smp("SoftBCEWithLogitsLoss", SoftBCEWithLogitsLoss(smooth_factor=0.1), MAP, MASK)
smp("SoftCrossEntropyLoss", SoftCrossEntropyLoss(smooth_factor=0.1), CLASSES, LABELS)
smp("focal_loss_with_logits", focal_loss_with_logits, MAP, MASK)
smp("soft_dice_score", soft_dice_score, MAP.sigmoid(), MASK)
smp("soft_jaccard_score", soft_jaccard_score, MAP.sigmoid(), MASK)
smp("soft_tversky_score", soft_tversky_score, MAP.sigmoid(), MASK, 0.3, 0.7)
smp("wing_loss", wing_loss, CLASSES, CLASSES + 0.5)

smp("SCSEModule", SCSEModule(4, reduction=2), r(2, 4, 3, 5))
smp("Conv3x3GNReLU", Conv3x3GNReLU(4, 32), r(2, 4, 3, 5))
