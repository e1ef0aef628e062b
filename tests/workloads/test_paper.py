"""The paper's fifteen networks are table IV's, to the last parameter: the smallest of each family is counted."""

from __future__ import annotations

import pytest
import torch

from ngbkit.workloads import paper, timm
from ngbkit.workloads.base import BATCH, Network, TensorSpec
from ngbkit.workloads.counts import count

# Table IV of the paper: parameters, and mult-adds as torchinfo counts them. True MACs beside them, from
# torch.utils.flop_counter: known figures of ResNet-50 (4.09 G) and DeiT-Base (17.6 G) are among them.
TABLE_IV = {
    "resnet18": (11689512, 1814083944, 1814073344),
    "resnet50": (25557032, 4089238376, 4089184256),
    "efficientnet_b3": (12233232, 962729320, 962708240),
    "deit3_small_patch16_224": (22059496, 79557352, 4598882304),
    "swin_s3_tiny_224": (28328674, 52152040, 4623332352),
    "convnext_tiny": (28589128, 322371592, 4455531264),
}


def test_the_zoo_is_in_table_ivs_order() -> None:
    """The zoo has fifteen networks, labelled by their timm names, as the families list them."""
    names = [workload.name for workload in paper.zoo()]

    assert 15 == len(set(names))
    assert list(TABLE_IV) == [name for name in names if name in TABLE_IV]
    assert names == [name for family in paper.FAMILIES.values() for name in family]


def test_a_network_of_the_zoo_takes_224_pixels() -> None:
    """EfficientNet too, although timm publishes it for other sizes."""
    workload = paper.zoo()[3]

    assert [224, 224] == workload.spec["img_size"]
    assert (1, 3, 224, 224) == timm.build(workload, {}).inputs[0].bind(1)


@pytest.mark.parametrize("name", TABLE_IV)
def test_a_network_of_the_zoo_has_table_ivs_counts(name: str) -> None:
    """Parameters and torchinfo's mult-adds match the paper, and true MACs match torch's counter."""
    import timm as timm_library

    with torch.device("meta"):  # shapes only: creating weights is slow
        module = timm_library.create_model(name).eval()
    counts = count(Network(inputs=[TensorSpec(name="input", shape=(BATCH, 3, 224, 224))], module=module))

    assert TABLE_IV[name] == (counts.parameters, counts.mult_adds, counts.macs)


@pytest.mark.parametrize(
    ("workload", "family"),
    [
        ("deit3_small_patch16_224", "deit"),
        ("swin_s3_tiny_224", "swin"),
        ("vit_base_patch16_224", "vit"),
        ("regnety_032", "regnety"),
        ("7b", "7b"),
    ],
)
def test_families(workload, family):
    """The paper defines its families; others are the leading letters of the name."""
    assert family == paper.find_family(workload)
