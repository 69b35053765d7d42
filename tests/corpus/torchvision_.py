"""Operators, losses, image functions and blocks of torchvision."""

from functools import partial

import torch
import torchvision_schemas  # noqa: F401
from functions import add, positive, r
from torchvision.models.convnext import CNBlock
from torchvision.models.resnet import BasicBlock
from torchvision.models.swin_transformer import PatchMerging
from torchvision.models.vision_transformer import EncoderBlock, MLPBlock
from torchvision.ops import (
    FrozenBatchNorm2d,
    Permute,
    SqueezeExcitation,
    box_area,
    box_convert,
    box_iou,
    clip_boxes_to_image,
    complete_box_iou_loss,
    distance_box_iou,
    distance_box_iou_loss,
    generalized_box_iou,
    generalized_box_iou_loss,
    sigmoid_focal_loss,
    stochastic_depth,
)
from torchvision.transforms import _functional_tensor as images


def torchvision(module: object, *example: object) -> None:
    """A module or function by the name that torchvision gives it."""
    name = getattr(module, "__name__", type(module).__name__)
    add(f"torchvision.{name}", module.eval() if hasattr(module, "eval") else module, *example)


def boxes(count: int) -> torch.Tensor:
    """Boxes as corners, those of which the second are the greater."""
    corners = r(count, 2)
    return torch.cat([corners, corners + positive(count, 2)], 1)


torchvision(box_area, boxes(5))
torchvision(box_iou, boxes(5), boxes(3))
torchvision(generalized_box_iou, boxes(5), boxes(3))
torchvision(distance_box_iou, boxes(5), boxes(3))
for _source, _target in (("xyxy", "cxcywh"), ("cxcywh", "xyxy"), ("xywh", "xyxy")):
    _convert = partial(box_convert, in_fmt=_source, out_fmt=_target)
    add(f"torchvision.{_source}_to_{_target}", _convert, boxes(5))
torchvision(clip_boxes_to_image, boxes(5), (2, 3))

torchvision(sigmoid_focal_loss, r(5, 3), positive(5, 3))
torchvision(generalized_box_iou_loss, boxes(5), boxes(5) + 0.1)
torchvision(distance_box_iou_loss, boxes(5), boxes(5) + 0.1)
torchvision(complete_box_iou_loss, boxes(5), boxes(5) + 0.1)

IMAGE = torch.sigmoid(r(2, 3, 4, 5))

torchvision(images.rgb_to_grayscale, IMAGE)
torchvision(images.adjust_brightness, IMAGE, 1.3)
torchvision(images.adjust_contrast, IMAGE, 1.3)
torchvision(images.adjust_saturation, IMAGE, 1.3)
torchvision(images.adjust_gamma, IMAGE, 1.3)
torchvision(images.adjust_hue, IMAGE, 0.1)
torchvision(images.normalize, IMAGE, [0.4, 0.5, 0.6], [0.2, 0.3, 0.4])
torchvision(images.invert, IMAGE)
torchvision(images.solarize, IMAGE, 0.6)
torchvision(images.gaussian_blur, IMAGE, [3, 3], [0.8, 0.8])

torchvision(FrozenBatchNorm2d(4), r(2, 4, 3, 5))
torchvision(SqueezeExcitation(4, 2), r(2, 4, 3, 5))
torchvision(Permute([0, 2, 3, 1]), r(2, 4, 3, 5))
torchvision(stochastic_depth, r(2, 4, 3), 0.5, "row", False)
torchvision(MLPBlock(6, 10, 0.0), r(2, 5, 6))
torchvision(EncoderBlock(2, 6, 10, 0.0, 0.0), r(2, 5, 6))
torchvision(CNBlock(4, 1e-6, 0.0), r(2, 4, 3, 5))
torchvision(BasicBlock(4, 4), r(2, 4, 3, 5))
torchvision(PatchMerging(4), r(2, 6, 10, 4))
