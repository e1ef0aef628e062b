"""timm networks: names, sizes and builds without a download."""

from __future__ import annotations

import pytest
import torch

from ngbkit.errors import UnknownNameError, WorkloadError
from ngbkit.workloads import timm
from ngbkit.workloads.base import Workload


def test_the_parsed_names_are_those_of_timm() -> None:
    """The names parsed from timm's source are those that it registers."""
    import timm as timm_library

    assert set(timm_library.list_models()) == timm.list_names()


def test_a_label_with_arguments_is_the_workload_of_the_same_call() -> None:
    """The label, without spaces, becomes the name of the workload."""
    parsed = timm.parse('resnet18{"num_classes": 10, "img_size": 160}')

    assert parsed == timm.model("resnet18", img_size=160, num_classes=10)
    assert 'resnet18{"img_size":160,"num_classes":10}' == parsed.name


@pytest.mark.parametrize("word", ["resnet81", "blocks.conv", "net.onnx", ""])
def test_parse_returns_none_for_another_source(word: str) -> None:
    """timm has no network of such a name."""
    assert timm.parse(word) is None


def test_an_unknown_name_offers_the_nearest() -> None:
    """The error suggests similar names."""
    with pytest.raises(UnknownNameError, match=r"unknown timm network 'resnet81'. Did you mean .*resnet18"):
        timm.model("resnet81")


def test_completion_lists_names_by_prefix() -> None:
    """Tab completes every name that starts with the prefix."""
    assert ["swin_s3_base_224", "swin_s3_small_224", "swin_s3_tiny_224"] == list(timm.complete("swin_s3_"))


@pytest.mark.parametrize(
    ("workload", "shape"),
    [
        (timm.model("test_resnet"), (3, 160, 160)),
        (timm.model("test_resnet", img_size=(64, 96)), (3, 64, 96)),
        (timm.model("test_vit", img_size=64), (3, 64, 64)),
        (timm.model("test_resnet.r160_in1k", in_chans=1), (1, 160, 160)),
    ],
)
def test_a_network_is_built_for_its_size(workload: Workload, shape: tuple[int, ...]) -> None:
    """Convolutional networks and transformers have the given size, by default timm's."""
    network = timm.build(workload, {})

    with torch.no_grad():
        output = network.module(torch.ones(1, *shape))

    assert shape == network.inputs[0].shape
    assert (1, 1000) == output.shape
    assert not network.module.training


def test_an_invalid_argument_lists_the_valid_ones() -> None:
    """The error names the arguments of the network."""
    with pytest.raises(WorkloadError, match=r"takes: .*num_classes.*drop_path_rate"):
        timm.build(timm.model("test_resnet", colour="red"), {})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"img_size": 0}, "invalid img_size: got 0; expected a number of pixels"),
        ({"img_size": (224,)}, "a height and a width"),
        ({"pretrained": True}, "weights are random"),
        ({"act_layer": torch.nn.ReLU}, "expected numbers, strings"),
    ],
)
def test_invalid_arguments_are_rejected_at_once(arguments: dict[str, object], message: str) -> None:
    """They fail at the client, not on the device."""
    with pytest.raises(WorkloadError, match=message):
        timm.model("resnet18", **arguments)


def test_arguments_that_are_not_json_show_the_form() -> None:
    """The error of an invalid label shows a valid one."""
    with pytest.raises(WorkloadError, match=r'expected JSON, such as resnet18\{"argument":value\}'):
        timm.parse("resnet18{img_size:160}")
