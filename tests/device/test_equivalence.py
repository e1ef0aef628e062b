"""Equivalence: a fast wrong answer is detected, float32 in another order is not an error."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from ngbkit import registry
from ngbkit.device import reference
from ngbkit.device.equivalence import NOISE, TOLERANCES, compare, compute_relative_error
from ngbkit.device.reference import Reference
from ngbkit.workloads import blocks, feeds, timm
from ngbkit.workloads.base import Network

REFERENCE = [np.random.default_rng(0).standard_normal((2, 50)), np.random.default_rng(1).standard_normal((2, 3, 4))]
LABELS = np.arange(200).reshape(2, 100)


def add_noise(relative: float) -> list[np.ndarray]:
    generator = np.random.default_rng(2)
    return [(array * (1 + relative * generator.choice([-1, 1], array.shape))).astype(np.float32) for array in REFERENCE]


def test_the_same_function_passes_with_its_error() -> None:
    """Single precision costs about 1e-7."""
    check = compare(add_noise(0), REFERENCE)

    assert "" == check.problem
    assert 0 < check.rmse < 1e-6
    assert 0 < check.max_abs_error < 1e-5


@pytest.mark.parametrize(("precision", "error"), [("f32", 1e-3), ("f16", 3e-2), ("bf16", 0.2)])
def test_an_error_above_its_tolerance_is_a_problem(precision: str, error: float) -> None:
    """Half of the allowed error is none."""
    allowed = TOLERANCES[precision].absolute / 2

    assert "relative RMSE" in compare(add_noise(error), REFERENCE, precision=precision).problem
    assert "" == compare(add_noise(allowed), REFERENCE, precision=precision).problem


def test_a_lowered_precision_does_not_pass_for_single() -> None:
    """bfloat16 costs some 4e-3, TF32 some 5e-4: neither is f32."""
    assert compare(add_noise(4e-3), REFERENCE).problem
    assert compare(add_noise(5e-4), REFERENCE).problem


def test_the_error_of_the_baseline_is_allowed() -> None:
    """A network that loses digits in float32 does so in any compiler."""
    assert compare(add_noise(1e-2), REFERENCE).problem
    assert "" == compare(add_noise(1e-2), REFERENCE, baseline_rmse=1e-2).problem


def test_every_output_counts() -> None:
    """One wrong output of several is enough, and the problem names it."""
    good = add_noise(0)

    assert compare([good[0], good[1] * 1.01], REFERENCE).problem.startswith("output 1: relative RMSE 0.01")
    assert compare([good[0] * 1.01, good[1]], REFERENCE).problem.startswith("output 0: relative RMSE 0.01")


def test_an_output_that_loses_digits_makes_no_room_for_another() -> None:
    """Each is compared with the baseline's own error in that output."""
    good, bad = add_noise(0), add_noise(1e-2)

    assert "" == compare([bad[0], good[1]], REFERENCE, baseline_rmse=[1e-2, 1e-7]).problem
    assert compare([good[0], bad[1]], REFERENCE, baseline_rmse=[1e-2, 1e-7]).problem.startswith("output 1")


@pytest.mark.parametrize(
    ("outputs", "text"),
    [
        ([REFERENCE[0]], "got 1 outputs; expected 2"),
        ([REFERENCE[1], REFERENCE[0]], "output 0 has shape"),
        ([REFERENCE[0], REFERENCE[1] * np.nan], "output 1 is not finite where the reference is"),
        ([np.full((2, 50), np.inf), REFERENCE[1]], "output 0 is not finite where the reference is"),
    ],
)
def test_outputs_of_another_form_are_a_problem(outputs: list[np.ndarray], text: str) -> None:
    """Missing, swapped or non-numeric outputs are a problem."""
    assert text in compare(outputs, REFERENCE).problem


@pytest.mark.parametrize(("got", "passes"), [(-np.inf, True), (np.inf, False), (np.nan, False), (-1e38, False)])
def test_an_infinite_value_is_expected_as_it_is(got: float, passes: bool) -> None:
    """A mask of -inf is -inf, and the other values are compared as usual."""
    want, masked = np.array([[1.0, -np.inf, 2.0]]), np.array([[1.0, got, 2.0]], np.float32)

    check = compare([masked], [want])

    assert passes == (check.problem == "")
    assert passes or "differs where the reference is infinite or not a number" in check.problem
    assert compare([masked * 1.01], [want]).problem


def test_a_value_that_is_no_number_is_expected_as_one() -> None:
    """A network that returns NaN returns NaN in every compiler."""
    want = np.array([[1.0, np.nan]])

    assert "" == compare([want.astype(np.float32)], [want]).problem
    assert compare([np.ones((1, 2))], [want]).problem


@pytest.mark.parametrize("batch", [1, 2, 7])
def test_the_rows_that_both_have_are_compared(batch: int) -> None:
    """One or two samples are enough for any batch size."""
    good = [np.concatenate([array] * 4)[:batch] for array in add_noise(0)]
    bad = [array.copy() for array in good]
    bad[1][0] *= 1.01

    assert "" == compare(good, REFERENCE).problem
    assert compare(bad, REFERENCE).problem


def test_labels_have_no_distance() -> None:
    """The error of integers and booleans is the share that differs, whatever the distance."""
    one_off, far_off = LABELS.copy(), LABELS.copy()
    one_off[0, 0] += 1
    far_off[0, 0] = 10**9
    flipped = LABELS % 2 == 0
    flipped[1, 3] ^= True

    assert compute_relative_error(one_off, LABELS)[0] == compute_relative_error(far_off, LABELS)[0] == 1 / 200
    assert compute_relative_error(flipped, LABELS % 2 == 0) == (1 / 200, 1.0)
    assert "" == compare([LABELS.astype(np.int32)], [LABELS]).problem
    assert compare([one_off], [LABELS]).problem.startswith("output 0: share of differing values 0.005")
    assert "" == compare([one_off], [LABELS], baseline_rmse=1 / 200).problem


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e12, 1e30])
def test_the_scale_of_an_output_does_not_matter(scale: float) -> None:
    """A hundredth of the reference is too much at any size, and its rounding at none."""
    want = REFERENCE[0] * scale

    assert "" == compare([want.astype(np.float32)], [want]).problem
    assert compare([want * 1.01], [want]).problem


@pytest.mark.parametrize("want", [np.zeros((2, 5)), np.full((2, 5), 1e-42), np.full((2, 5), 0.5)])
def test_a_constant_output_has_an_absolute_error(want: np.ndarray) -> None:
    """A constant or very small output is compared by its absolute error."""
    assert "" == compare([want.astype(np.float32)], [want]).problem
    assert "" == compare([want + 1e-8], [want]).problem
    assert compare([want + 1e-3], [want]).problem


def test_only_the_magnitude_of_noise_counts() -> None:
    """The tolerance follows the magnitude of the noise, such as that of cancelled numbers."""
    want, baseline = np.full((2, 5), 1e-17), 1e9

    assert baseline > NOISE
    assert "" == compare([want + 3e-8], [want], baseline_rmse=baseline).problem
    assert compare([want + 1], [want], baseline_rmse=baseline).problem


def build_classifier(name: str) -> Network:
    return timm.build(timm.model(name, img_size=64), {})


NETWORKS: dict[str, tuple[Callable[[], Network], str]] = {
    "resnet18": (lambda: build_classifier("resnet18"), "layer2.1.conv2.weight"),
    "efficientnet_b0": (lambda: build_classifier("efficientnet_b0"), "blocks.3.1.conv_dw.weight"),
    "conv": (lambda: blocks.build(blocks.conv(size=(16, 16)), {"width": 16, "depth": 6}), "3.0.weight"),
    "mha": (lambda: blocks.build(blocks.mha(), {"width": 32, "depth": 6}), "3.attention.out_proj.weight"),
}


@pytest.fixture(scope="module", params=NETWORKS)
def network(request: pytest.FixtureRequest) -> tuple[Network, str, Reference]:
    """A network, a weight in its middle, and its reference."""
    build, weight = NETWORKS[request.param]
    built = build()
    return (
        built,
        weight,
        reference.build_reference(built, 0, threads=1, onnx=lambda rows: pytest.fail("it is a module")),
    )


def run(network: Network, change: Callable[[nn.Module], object]) -> list[np.ndarray]:
    """The outputs of a changed copy."""
    module = copy.deepcopy(network.module)
    assert module is not None
    fed = [torch.from_numpy(array) for array in feeds.draw(network.inputs, {}, reference.ROWS, 0)]
    with torch.no_grad():
        change(module)
        return [module(*fed).numpy()]


def round_weights(dtype: torch.dtype) -> Callable[[nn.Module], None]:
    def change(module: nn.Module) -> None:
        for weight in module.parameters():
            weight.copy_(weight.to(dtype))

    return change


def test_a_zeroed_weight_in_the_middle_is_caught(network: tuple[Network, str, Reference]) -> None:
    """A wrong part of a network changes its output."""
    built, weight, expected = network
    same = run(built, lambda module: None)
    broken = run(built, lambda module: module.get_parameter(weight).zero_())

    assert "" == compare(same, expected.outputs, baseline_rmse=expected.errors).problem
    assert "relative RMSE" in compare(broken, expected.outputs, baseline_rmse=expected.errors).problem


def test_the_error_reveals_the_precision(network: tuple[Network, str, Reference]) -> None:
    """Weights rounded to bfloat16 or float16 are not f32; those of float16 pass at that precision."""
    built, _, expected = network
    coarse, finer = run(built, round_weights(torch.bfloat16)), run(built, round_weights(torch.float16))

    assert compare(coarse, expected.outputs, baseline_rmse=expected.errors).problem
    assert compare(finer, expected.outputs, baseline_rmse=expected.errors).problem
    assert "" == compare(finer, expected.outputs, baseline_rmse=expected.errors, precision="f16").problem


def test_every_precision_has_a_tolerance() -> None:
    """Every precision of an installed compiler has a tolerance."""
    compilers = registry.load_all(registry.COMPILERS).values()
    options = [compiler.options["precision"] for compiler in compilers if "precision" in compiler.options]
    precisions = {choice for option in options for choice in option.choices}

    assert {"f32", "bf16", "tf32"} <= precisions
    assert precisions <= set(TOLERANCES)
