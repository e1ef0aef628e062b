"""timm networks: named, sized and built without a download."""

from __future__ import annotations

import pytest
import torch

from ngbkit.errors import UnknownNameError, WorkloadError
from ngbkit.workloads import timm
from ngbkit.workloads.base import Workload


def test_names_are_those_of_timm_itself() -> None:
    """The names that are read off timm's source are the ones that it registers."""
    import timm as timm_library

    assert set(timm_library.list_models()) == timm.list_names()


def test_a_word_with_arguments_is_the_workload_of_the_same_call() -> None:
    """A label's text, spaces aside, becomes its name, and stands for the call with those arguments."""
    parsed = timm.parse('resnet18{"num_classes": 10, "img_size": 160}')

    assert parsed == timm.model("resnet18", img_size=160, num_classes=10)
    assert 'resnet18{"img_size":160,"num_classes":10}' == parsed.name


@pytest.mark.parametrize("word", ["resnet81", "blocks.conv", "net.onnx", ""])
def test_a_word_that_is_no_timm_name_is_left_to_other_sources(word: str) -> None:
    """parse() claims nothing that timm does not have."""
    assert timm.parse(word) is None


def test_a_wrong_name_offers_the_nearest() -> None:
    """A typing error is answered with the name that was meant."""
    with pytest.raises(UnknownNameError, match=r"unknown timm network 'resnet81'. Did you mean .*resnet18"):
        timm.model("resnet81")


def test_completion_lists_names_by_prefix() -> None:
    """Tab after a prefix gives every name that starts with it."""
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
    """Convolutional networks and transformers alike take the size that was asked for, by default timm's own."""
    network = timm.build(workload, {})

    with torch.no_grad():
        output = network.module(torch.ones(1, *shape))

    assert shape == network.inputs[0].shape
    assert (1, 1000) == output.shape
    assert not network.module.training


def test_an_argument_that_the_network_does_not_take_lists_those_it_does() -> None:
    """The error of a wrong argument names the valid ones."""
    with pytest.raises(WorkloadError, match=r"takes: .*num_classes.*drop_path_rate"):
        timm.build(timm.model("test_resnet", colour="red"), {})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"img_size": 0}, "img_size 0 does not fit"),
        ({"img_size": (224,)}, "a height and a width"),
        ({"pretrained": True}, "weights are random"),
        ({"act_layer": torch.nn.ReLU}, "must be numbers, texts"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_at_once(arguments: dict[str, object], message: str) -> None:
    """A bad argument fails where it is written, not on the device."""
    with pytest.raises(WorkloadError, match=message):
        timm.model("resnet18", **arguments)


def test_arguments_that_are_not_json_show_the_form() -> None:
    """A label with broken braces is answered with a whole one."""
    with pytest.raises(WorkloadError, match=r'Write them as resnet18\{"argument":value\}'):
        timm.parse("resnet18{img_size:160}")
