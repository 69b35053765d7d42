"""Colour, geometry, filters, enhancement and losses of kornia."""

import torch
from functions import add, ints, positive, r
from kornia import color, enhance, filters, geometry, losses


def kornia(function: object, *example: object) -> None:
    """A function by the name that kornia gives it."""
    name = function.__name__  # type: ignore[attr-defined]
    add(f"kornia.{name}", function, *example)


IMAGE = torch.sigmoid(r(2, 3, 4, 5))

kornia(color.rgb_to_grayscale, IMAGE)
kornia(color.rgb_to_bgr, IMAGE)
kornia(color.rgb_to_ycbcr, IMAGE)
kornia(color.ycbcr_to_rgb, IMAGE)
kornia(color.rgb_to_yuv, IMAGE)
kornia(color.rgb_to_xyz, IMAGE)
kornia(color.rgb_to_hsv, IMAGE)
kornia(color.hsv_to_rgb, IMAGE)
kornia(color.rgb_to_lab, IMAGE)
kornia(color.rgb_to_linear_rgb, IMAGE)
kornia(color.sepia, IMAGE)

kornia(enhance.adjust_brightness, IMAGE, 0.2)
kornia(enhance.adjust_contrast, IMAGE, 0.7)
kornia(enhance.adjust_gamma, IMAGE, 1.3)
kornia(enhance.adjust_saturation, IMAGE, 1.3)
kornia(enhance.adjust_sigmoid, IMAGE)
kornia(enhance.normalize, IMAGE, positive(3), positive(3))
kornia(enhance.denormalize, IMAGE, positive(3), positive(3))
kornia(enhance.normalize_min_max, IMAGE)
kornia(enhance.solarize, IMAGE, 0.6)

kornia(geometry.rad2deg, r(3, 5))
kornia(geometry.pol2cart, r(3, 5), r(3, 5))
kornia(geometry.cart2pol, r(3, 5), r(3, 5))
kornia(geometry.convert_points_from_homogeneous, r(2, 5, 3))
kornia(geometry.convert_points_to_homogeneous, r(2, 5, 3))
kornia(geometry.normalize_quaternion, r(3, 4))
kornia(geometry.quaternion_to_rotation_matrix, r(3, 4))
kornia(geometry.quaternion_exp_to_log, r(3, 4))
kornia(geometry.axis_angle_to_quaternion, r(5, 3))
kornia(geometry.axis_angle_to_rotation_matrix, r(5, 3))
kornia(geometry.angle_to_rotation_matrix, r(5))
kornia(geometry.normalize_pixel_coordinates, r(2, 5, 2), 6, 7)
kornia(geometry.normalize_points_with_intrinsics, r(5, 2), r(5, 3, 3))
kornia(geometry.transform_points, r(2, 4, 4), r(2, 5, 3))
kornia(geometry.relative_transformation, r(2, 4, 4), r(2, 4, 4))
kornia(geometry.point_line_distance, r(5, 2), r(5, 3))
kornia(geometry.euclidean_distance, r(3, 5), r(3, 5))

kornia(filters.gaussian, 5, positive(2, 1))
kornia(filters.box_blur, IMAGE, 3)
kornia(filters.spatial_gradient, IMAGE)
kornia(filters.laplacian, IMAGE, 3)
kornia(filters.unsharp_mask, IMAGE, (3, 3), (1.5, 1.5))

CLASSES = r(2, 3, 4, 5)
LABELS = ints(3, 2, 4, 5)

kornia(losses.charbonnier_loss, r(3, 5), r(3, 5))
kornia(losses.cauchy_loss, r(3, 5), r(3, 5))
kornia(losses.geman_mcclure_loss, r(3, 5), r(3, 5))
kornia(losses.welsch_loss, r(3, 5), r(3, 5))
kornia(losses.dice_loss, CLASSES, LABELS)
kornia(losses.tversky_loss, CLASSES, LABELS, 0.5, 0.5)
kornia(losses.focal_loss, CLASSES, LABELS, 0.25)
kornia(losses.binary_focal_loss_with_logits, CLASSES, CLASSES.sigmoid())
kornia(losses.total_variation, IMAGE)
kornia(losses.psnr_loss, IMAGE, IMAGE + 0.1, 1.0)
kornia(losses.ssim_loss, IMAGE, IMAGE + 0.1, 3)
kornia(losses.js_div_loss_2d, IMAGE, IMAGE + 0.1)
kornia(losses.kl_div_loss_2d, IMAGE, IMAGE + 0.1)
kornia(losses.inverse_depth_smoothness_loss, r(2, 1, 4, 5), IMAGE)
