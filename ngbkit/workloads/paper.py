"""The fifteen networks of the paper's table IV, in its order, at its 224 x 224 pixels, and families of networks."""

from __future__ import annotations

import re

from ngbkit.workloads import timm
from ngbkit.workloads.base import Workload

#: Family to the labels of its three networks in `zoo`, small to large.
FAMILIES: dict[str, tuple[str, str, str]] = {
    "resnet": ("resnet18", "resnet50", "resnet101"),
    "efficientnet": ("efficientnet_b3", "efficientnet_b4", "efficientnet_b5"),
    "deit": ("deit3_small_patch16_224", "deit3_medium_patch16_224", "deit3_base_patch16_224"),
    "swin": ("swin_s3_tiny_224", "swin_s3_small_224", "swin_s3_base_224"),
    "convnext": ("convnext_tiny", "convnext_small", "convnext_base"),
}


def zoo() -> list[Workload]:
    """The paper's fifteen networks, in table IV's order, each labelled by its timm name.

    All take 3 x 224 x 224. timm publishes EfficientNet for other sizes: on the command line, ``efficientnet_b3`` is a
    network for 288 x 288.
    """
    # Only where timm publishes another size, so that the workloads of the others equal those of their bare names.
    sizes = {name: 224 if family == "efficientnet" else None for family, names in FAMILIES.items() for name in names}
    return [timm.model(name, name=name, img_size=size) for name, size in sizes.items()]


def find_family(workload: str) -> str:
    """The family of a network: the paper's, or the leading letters of its name."""
    for name, members in FAMILIES.items():
        if workload in members:
            return name
    letters = re.match(r"[A-Za-z]+", workload)
    return letters[0].lower() if letters else workload
