"""Random values for constant tensors: every weight affects the output."""

from __future__ import annotations

import random
import sys
from typing import Any, NoReturn

import numpy as np
import pytest
import timm as timm_library
import torch
from torch import nn

from ngbkit.workloads import blocks, timm
from ngbkit.workloads.base import Workload
from ngbkit.workloads.randomise import compile_nothing, randomise, seed_generators


def measure_effect_of_middle_weight(module: nn.Module) -> float:
    """Measure how far the output moves, relative to its spread, when a convolution in the middle is zeroed."""
    images = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        reference = module(images)
        module.layer3[1].conv1.weight.zero_()
        difference = module(images) - reference
    return (difference.std() / reference.std()).item()


def test_a_weight_in_the_middle_of_a_network_reaches_its_output() -> None:
    """A middle weight affects the output of a network only once it is randomised."""
    with seed_generators(0):
        untrained, randomised = (timm_library.create_model("resnet18").eval() for _ in range(2))

    randomise(randomised, 0)

    assert 0 == measure_effect_of_middle_weight(untrained)
    assert measure_effect_of_middle_weight(randomised) > 0.01


@pytest.mark.parametrize("name", ["efficientnet_b0", "mobilenetv3_small_100", "resnet18"])
def test_every_convolution_of_a_network_reaches_its_output(name: str) -> None:
    """Gates and activations do not let the signal fade: BatchNorm compensates for them, as in training."""
    module = timm.build(timm.model(name, img_size=64), {}).module
    images = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    weights = [weight for weight in module.parameters() if weight.ndim == 4]
    effects = []
    with torch.no_grad():
        reference = module(images)
        for weight in weights[:: len(weights) // 8]:
            values = weight.clone()
            weight.zero_()
            effects.append(((module(images) - reference).std() / reference.std()).item())
            weight.copy_(values)

    assert min(effects) > 1e-3
    assert reference.abs().max() < 100


def test_statistics_of_a_trained_batch_norm_do_not_change() -> None:
    """`randomise` scales only re-drawn statistics, if the signal would fade, and leaves no hook."""
    faint = nn.Sequential(nn.BatchNorm1d(4), nn.BatchNorm1d(4)).eval()
    with torch.no_grad():
        faint[0].running_var.copy_(torch.arange(1.0, 5.0))
    images = 1e-3 * torch.randn(8, 4, generator=torch.Generator().manual_seed(0))

    randomise(faint, 0, lambda: faint(images))

    assert [1, 2, 3, 4] == faint[0].running_var.tolist()
    assert faint[1].running_var.max() < 1e-4
    assert not any(norm._forward_pre_hooks for norm in faint)


def test_trained_values_do_not_change() -> None:
    """`randomise` draws anew only tensors of one repeated value, not varying or single values."""
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.BatchNorm2d(1))
    with torch.no_grad():
        module[1].weight.copy_(torch.tensor([1.0, 1.0, 1.0, 1.1]))
    state = {name: value.clone() for name, value in module.state_dict().items()}

    randomise(module, 0)

    changed = {name for name, value in module.state_dict().items() if not torch.equal(state[name], value)}
    assert {"1.bias", "1.running_mean", "1.running_var"} == changed


def test_values_depend_only_on_the_seed_and_the_name() -> None:
    """The same seed gives the same values in any order; another seed or name gives other values."""

    def draw(seed: int, *names: str) -> nn.ModuleDict:
        module = nn.ModuleDict({name: nn.BatchNorm1d(8) for name in names})
        randomise(module, seed)
        return module

    module, reordered = draw(0, "a", "b"), draw(0, "b", "a")

    assert torch.equal(module["a"].weight, reordered["a"].weight)
    assert not torch.equal(module["a"].weight, module["b"].weight)
    assert not torch.equal(module["a"].weight, draw(1, "a")["a"].weight)


@pytest.mark.parametrize(
    ("name", "blank", "least", "most"),
    [
        ("weight", torch.ones(64), 0.5, 1.0),
        ("running_var", torch.ones(64), 0.5, 1.0),
        ("logit_scale", torch.full((64,), -4.0), -4.0, -2.0),
        ("gamma", torch.full((64,), 1e-6), 0.1, 0.5),
        ("weight", torch.zeros(64), 0.1, 0.5),
        ("bias", torch.zeros(64), -0.1, 0.1),
        ("weight", torch.zeros(4, 12), -0.5, 0.5),
    ],
)
def test_a_draw_depends_on_the_constant(name: str, blank: torch.Tensor, least: float, most: float) -> None:
    """Scales keep their sign, tiny ones grow, shifts stay small, matrices keep the variance."""
    module = nn.Module()
    module.register_buffer(name, blank.clone())

    randomise(module, 0)

    values = module.get_buffer(name)
    assert len(values.unique()) > 1
    assert least <= values.min()
    assert values.max() <= most


def test_other_tensors_do_not_change() -> None:
    """Integers, infinities, expanded views, lazy and empty tensors are not re-drawn."""
    module = nn.Module()
    module.register_buffer("index", torch.zeros(4, dtype=torch.int64))
    module.register_buffer("mask", torch.full((4,), float("-inf")))
    module.register_buffer("view", torch.zeros(1).expand(4))
    module.register_buffer("empty", torch.zeros(0))
    module.lazy = nn.LazyLinear(4)

    randomise(module, 0)

    assert [0, 0, 0, 0] == module.get_buffer("index").tolist()
    assert [float("-inf")] * 4 == module.get_buffer("mask").tolist()
    assert [0, 0, 0, 0] == module.get_buffer("view").tolist()


@pytest.mark.parametrize(("workload", "shape"), [(blocks.conv(size=(16, 16)), (64, 16, 16)), (blocks.mha(), (10, 64))])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_deep_stack_stays_within_half_precision(
    workload: Workload, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    """The output of six blocks neither overflows nor fades."""
    module = blocks.build(workload, {"width": 64, "depth": 6}).module.to(dtype)

    with torch.no_grad():
        output = module(torch.randn(2, *shape, generator=torch.Generator().manual_seed(0)).to(dtype)).float()

    assert output.isfinite().all()
    assert 0.01 < output.std() < 10


def test_a_build_draws_from_the_seed_and_restores_the_users_generators() -> None:
    """Two builds of a workload have equal weights, and the user's draws do not change."""
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)
    expected = torch.rand(1), random.random(), np.random.rand()
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)
    first, second = (timm.build(timm.model("test_resnet"), {}).module.state_dict() for _ in range(2))

    assert expected == (torch.rand(1), random.random(), np.random.rand())
    assert all(torch.equal(value, second[name]) for name, value in first.items())


def test_compiled_parts_run_eagerly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiled part is not compiled; without Dynamo there is none, and Dynamo is not loaded."""

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise AssertionError("compiled")

    compiled = torch.compile(nn.ReLU(), backend=refuse)
    with compile_nothing():
        assert 0 == float(compiled(-torch.ones(())))
    monkeypatch.delitem(sys.modules, "torch._dynamo")
    with compile_nothing():
        assert "torch._dynamo" not in sys.modules
