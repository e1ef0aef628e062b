"""timm networks: names, sizes and builds without a download."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import torch

from ngbkit.errors import UnknownNameError, UsageError, WorkloadError
from ngbkit.workloads import timm
from ngbkit.workloads.base import BATCH, Workload


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


def test_without_timm_any_name_may_be_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device that builds it, or a recording, knows; files and blocks are of other sources."""
    monkeypatch.setattr(timm, "list_names", frozenset)

    assert "resnet18" == timm.parse("resnet18").name  # type: ignore[union-attr]
    assert [None, None] == [timm.parse(word) for word in ("blocks.conv", "net.onnx")]


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

    assert (BATCH, *shape) == network.inputs[0].shape
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
        ({"checkpoint_path": "weights.pth"}, "invalid argument checkpoint_path of resnet18: .* loaded from files"),
        ({"pretrained_cfg": {"file": "weights.pth"}}, "invalid argument pretrained_cfg"),
        ({"cache_dir": ".", "pretrained_cfg_overlay": {"url": "x"}}, "argument cache_dir, pretrained_cfg_overlay"),
    ],
)
def test_invalid_arguments_are_rejected_at_once(arguments: dict[str, object], message: str) -> None:
    """Invalid arguments fail at the client, not on the device."""
    with pytest.raises(WorkloadError, match=message):
        timm.model("resnet18", **arguments)


def test_arguments_that_are_not_json_show_the_form() -> None:
    """The error of an invalid label shows a valid one."""
    with pytest.raises(WorkloadError, match=r'expected JSON, such as resnet18\{"argument":value\}'):
        timm.parse("resnet18{img_size:160}")


@pytest.mark.parametrize(
    ("architecture", "kwargs"),
    [("test_resnet", {"checkpoint_path": "x.pth"}), ("local-dir:x", {}), ("hf-hub:x/y", {}), ("local-dir:x.y", {})],
)
def test_a_device_loads_no_weights(
    architecture: str, kwargs: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A description from elsewhere is checked where it is built: torch never opens a file that it names."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "config.json").write_text('{"architecture": "test_resnet"}')
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("torch.load was reached"))
    spec = {"architecture": architecture, "img_size": None, "kwargs": kwargs}
    (tmp_path / "x.pth").touch()

    with pytest.raises(UsageError, match=r"invalid argument checkpoint_path|unknown timm network"):
        timm.build(Workload(name="x", source="timm", spec=spec), {})


def test_no_argument_of_timm_loads_a_file_unnoticed() -> None:
    """Each argument that timm itself takes, beside those of a network, is refused or known to load nothing."""
    from timm.models import build_model_with_cfg, create_model

    harmless = {"scriptable", "exportable", "no_jit", "model_cfg", "feature_cfg", "kwargs_filter"}
    positional = {"model_name", "model_cls", "variant", "kwargs"}
    functions = (create_model, build_model_with_cfg)
    arguments = {name for function in functions for name in inspect.signature(function).parameters}
    arguments -= positional | harmless

    assert len(arguments) > 5
    for name in arguments:
        with pytest.raises(WorkloadError, match=f"invalid argument {name} of test_resnet"):
            timm.model("test_resnet", **{name: "x"})
