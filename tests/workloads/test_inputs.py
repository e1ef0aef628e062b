"""Inputs that a user describes, in every valid form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from ngbkit.errors import WorkloadError
from ngbkit.workloads import inputs
from ngbkit.workloads.base import TensorSpec


class Pair(nn.Module):
    def forward(self, left: torch.Tensor, right: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
        return left - right if scale is None else (left - right) * scale


class Loose(nn.Module):
    def forward(self, *values: torch.Tensor) -> torch.Tensor:
        return sum(values, torch.zeros(()))


@pytest.mark.parametrize(
    ("module", "input_shape", "expected"),
    [
        (Pair(), (3, 8, 8), {"left": (3, 8, 8)}),
        (Pair(), [3, 8, 8], {"left": (3, 8, 8)}),
        (Pair(), 5, {"left": (5,)}),
        (Pair(), (), {"left": ()}),
        (Pair(), [(3,), (4, 5)], {"left": (3,), "right": (4, 5)}),
        (Pair(), ((3,), (4, 5)), {"left": (3,), "right": (4, 5)}),
        (Pair(), {"right": 2, "left": (3,)}, {"right": (2,), "left": (3,)}),
        (Loose(), [(3,), (4,)], {"input0": (3,), "input1": (4,)}),
    ],
)
def test_shapes_become_inputs_named_after_the_arguments(
    module: nn.Module, input_shape: Any, expected: dict[str, tuple[int, ...]]
) -> None:
    """A shape, a list or a dict of shapes; in float32."""
    specs = inputs.parse_shapes(input_shape, module)

    assert [TensorSpec(name=name, shape=shape) for name, shape in expected.items()] == specs


@pytest.mark.parametrize("input_shape", ["3x8x8", (3, -1), (3.0, 8), {"left": None}, [(3,), "x"], None])
def test_an_invalid_shape_is_rejected(input_shape: Any) -> None:
    """The error shows the valid forms."""
    with pytest.raises(
        WorkloadError, match=r"invalid input_shape: got .*; expected, without the batch dimension, a tuple such as"
    ):
        inputs.parse_shapes(input_shape, Pair())


@pytest.mark.parametrize("wrap", [lambda a, b: [a, b], lambda a, b: (a, b), lambda a, b: {"left": a, "right": b}])
def test_tensors_become_inputs_with_their_rows(wrap: Any) -> None:
    """Shapes and dtypes without the batch dimension, and every row; of tensors or NumPy arrays."""
    left, right = torch.arange(6).reshape(2, 3), np.ones((2, 1), np.float32)

    specs, rows = inputs.parse_values(wrap(left, right), Pair())

    expected = [TensorSpec(name="left", shape=(3,), dtype="int64"), TensorSpec(name="right", shape=(1,))]
    assert expected == specs
    assert [[0, 1, 2], [3, 4, 5]] == rows["left"].tolist()
    assert [[1], [1]] == rows["right"].tolist()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            [torch.ones(2, 3), torch.ones(3, 3)],
            "invalid batch of the inputs: got {'left': 2, 'right': 3} rows; expected the same number",
        ),
        (torch.ones(0, 3), "the same number >= 1"),
        (torch.ones(()), "leading batch dimension"),
        ([], "no inputs; expected a tensor"),
        ("text", "invalid input: got a str; expected a tensor"),
        (torch.ones(2, 3, dtype=torch.bfloat16), "bfloat16"),
    ],
)
def test_invalid_tensors_are_rejected(values: Any, message: str) -> None:
    """The error shows the valid forms."""
    with pytest.raises(WorkloadError, match=message):
        inputs.parse_values(values, Pair())


def test_inputs_by_name_reach_their_arguments() -> None:
    """In another order than the module's, tensors are passed by name; in its own order, the module is not wrapped."""
    module = Pair()
    left, right, scale = torch.full((1,), 3.0), torch.full((1,), 1.0), torch.full((1,), 5.0)
    specs = {name: TensorSpec(name=name, shape=()) for name in ("left", "right", "scale")}

    swapped = inputs.wrap_by_position(module, [specs["right"], specs["left"]])
    scaled = inputs.wrap_by_position(module, [specs["left"], specs["right"], specs["scale"]])

    assert (2.0,) == swapped(right, left)
    assert module is scaled
    assert 10.0 == scaled(left, right, scale)


def test_a_wrapped_module_returns_a_flat_tuple_in_its_mode() -> None:
    """Nested outputs are flattened in training and in evaluation."""

    class Nest(nn.Module):
        def forward(self, x: torch.Tensor) -> dict[str, Any]:
            return {"b": x, "a": [x + 1, None]}

    flat = inputs.wrap_in_order(Nest().eval())

    assert (1, 2) == flat(torch.tensor(1))
    assert not flat.training
    assert inputs.wrap_in_order(Nest().train()).training
