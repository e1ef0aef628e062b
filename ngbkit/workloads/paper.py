"""The paper's own networks: the fifteen of table IV, in its order, at its 224 x 224 pixels."""

from __future__ import annotations

from ngbkit.workloads import timm
from ngbkit.workloads.base import Workload

#: Family to the names of its three networks, small to large, as `zoo` labels them.
FAMILIES: dict[str, tuple[str, str, str]] = {
    "resnet": ("resnet18", "resnet50", "resnet101"),
    "efficientnet": ("efficientnet_b3", "efficientnet_b4", "efficientnet_b5"),
    "deit": ("deit3_small_patch16_224", "deit3_medium_patch16_224", "deit3_base_patch16_224"),
    "swin": ("swin_s3_tiny_224", "swin_s3_small_224", "swin_s3_base_224"),
    "convnext": ("convnext_tiny", "convnext_small", "convnext_base"),
}


def zoo() -> list[Workload]:
    """The paper's fifteen networks, in table IV's order, each labelled by its timm name.

    All take 3 x 224 x 224, which for EfficientNet is not the size that timm published: the command line's
    ``efficientnet_b3`` is a network of 288 x 288.
    """
    return [timm.model(name, name=name, img_size=_size(name)) for family in FAMILIES.values() for name in family]


def _size(name: str) -> int | None:
    """224 where timm's own size is another; else None, so that the network is the one that its bare name stands for."""
    return 224 if name in FAMILIES["efficientnet"] else None
