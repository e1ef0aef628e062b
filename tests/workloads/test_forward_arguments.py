"""Inputs that do not fit the arguments of ``forward``: the error names them, and the inputs to write instead."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest
import torch

from ngbkit.errors import WorkloadError
from ngbkit.workloads import cell
from ngbkit.workloads.base import TensorSpec
from ngbkit.workloads.forward_arguments import check_arguments
from ngbkit.workloads.module import from_module

IMAGE, MASK = torch.zeros(2, 3, 8, 8), torch.zeros(2, 1, 8, 8)


def blend(image, mask): ...
def scale(image, factor=1.0): ...
def attend(image, *, mask): ...
def stack(*images): ...
def collect(**images): ...
def answer(): ...


@pytest.mark.parametrize(
    ("forward", "positional", "keywords"),
    [
        (blend, (IMAGE, MASK), {}),
        (blend, (IMAGE,), {"mask": MASK}),
        (blend, (), {"mask": MASK, "image": IMAGE}),
        (scale, (IMAGE,), {}),
        (attend, (IMAGE,), {"mask": MASK}),
        (stack, (IMAGE, IMAGE, MASK), {}),
        (collect, (), {"left": IMAGE}),
    ],
)
def test_inputs_that_fit_are_accepted(forward: Any, positional: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    """Inputs are accepted by position and by name, with defaults and with any number."""
    check_arguments("net", inspect.signature(forward), positional, keywords)


@pytest.mark.parametrize(
    ("forward", "positional", "keywords", "message"),
    [
        (
            blend,
            (IMAGE,),
            {},
            "invalid inputs of net: got image; expected image, mask, the arguments of forward(); mask is missing. "
            "Write "
            'input_shape = {"image": (3, 8, 8), "mask": (…)}, or give tensors: inputs = (image, mask).',
        ),
        (
            scale,
            (IMAGE, MASK, MASK),
            {},
            "got 3 inputs; expected image and optionally factor, the arguments of forward(); 1 too many. Write "
            'input_shape = {"image": (3, 8, 8), "factor": (1, 8, 8)}, or give tensors: inputs = (image, factor).',
        ),
        (
            blend,
            (),
            {"image": IMAGE, "masks": MASK},
            "got image, masks; expected image, mask, the arguments of forward(); mask is missing, masks is none of its "
            'arguments. Write input_shape = {"image": (3, 8, 8), "mask": (…)}, or',
        ),
        (
            attend,
            (IMAGE, MASK),
            {},
            "got 2 inputs; expected image, mask, the arguments of forward(); mask is missing, 1 too many. Write "
            'input_shape = {"image": (3, 8, 8), "mask": (…)}, or give tensors: '
            'inputs = {"image": image, "mask": mask}.',
        ),
        (
            blend,
            (IMAGE, MASK),
            {"mask": MASK},
            "got image, mask, mask; expected image, mask, the arguments of forward(); ",
        ),
        (answer, (IMAGE,), {}, "got 1 input; expected none, the arguments of forward(); 1 too many. Add the input to"),
    ],
)
def test_the_error_names_the_inputs_and_the_remedy(
    forward: Any, positional: tuple[Any, ...], keywords: dict[str, Any], message: str
) -> None:
    """The error has the shapes of one sample of each input, and the remedy."""
    with pytest.raises(WorkloadError, match=re.escape(message)):
        check_arguments("net", inspect.signature(forward), positional, keywords)


def test_specs_of_inputs_have_shapes_too() -> None:
    """A description of an input stands for its tensor."""
    spec = TensorSpec(name="image", shape=("batch", 3, 8, 8))

    with pytest.raises(WorkloadError, match=re.escape('{"image": (3, 8, 8), "mask": (…)}')):
        check_arguments("net", inspect.signature(blend), (spec,), {})


class Blend(torch.nn.Module):
    """A network of two inputs."""

    def forward(self, image: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return image * mask


@pytest.mark.parametrize(
    ("inputs", "problem"),
    [
        ("input_shape = (3, 8, 8)", "got image; .* mask is missing"),
        ('input_shape = {"image": (3, 8, 8)}', "got image; .* mask is missing"),
        (
            'inputs = {"image": torch.ones(2, 3, 8, 8), "masks": torch.ones(2, 3, 8, 8)}',
            "masks is none of its arguments",
        ),
        ("inputs = (torch.ones(2, 3, 8, 8),) * 3", "got 3 inputs; .* 1 too many"),
    ],
)
def test_a_cell_whose_inputs_do_not_fit_is_an_error(inputs: str, problem: str) -> None:
    """Torch would raise a TypeError without a remedy."""
    source = f"import torch\n{inspect.getsource(Blend)}model = Blend()\n{inputs}"
    (workload,) = cell.from_source(source)

    with pytest.raises(WorkloadError, match=rf"{problem}.* Write input_shape = {{\"image\": \(3, 8, 8\), \"mask\": "):
        cell.build(workload, {})


def test_example_inputs_that_do_not_fit_are_an_error() -> None:
    """A live module is checked where it is exported."""
    with pytest.raises(WorkloadError, match=r"invalid inputs of net: got image; .* inputs = \(image, mask\)"):
        from_module("net", Blend(), IMAGE)
