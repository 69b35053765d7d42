"""torchvision, imported beside another build of torch than its own too.

Its compiled library, which defines its operators, does not load there, and it describes two of them
as it is imported: with those defined, all that is Python in it is there.
"""

import torch

try:
    import torchvision  # noqa: F401
except RuntimeError:
    LIBRARY = torch.library.Library("torchvision", "FRAGMENT")
    for _name in ("nms", "qnms"):
        LIBRARY.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
