"""What a user calls inputs, in every form that it may have."""

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
    ("module", "given", "expected"),
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
    module: nn.Module, given: Any, expected: dict[str, tuple[int, ...]]
) -> None:
    """One shape, several, or a dict of them; in float32."""
    specs = inputs.from_shapes(given, module)

    assert [TensorSpec(name=name, shape=shape) for name, shape in expected.items()] == specs


@pytest.mark.parametrize("given", ["3x8x8", (3, -1), (3.0, 8), {"left": None}, [(3,), "x"], None])
def test_what_is_no_shape_is_refused(given: Any) -> None:
    """The error shows what an input shape may be."""
    with pytest.raises(WorkloadError, match=r"does not fit; valid, without the batch dimension: a tuple such as"):
        inputs.from_shapes(given, Pair())


@pytest.mark.parametrize("wrap", [lambda a, b: [a, b], lambda a, b: (a, b), lambda a, b: {"left": a, "right": b}])
def test_tensors_become_inputs_with_their_rows(wrap: Any) -> None:
    """Shapes and dtypes without the batch dimension, and every row kept; NumPy arrays will do as well."""
    left, right = torch.arange(6).reshape(2, 3), np.ones((2, 1), np.float32)

    specs, rows = inputs.from_values(wrap(left, right), Pair())

    expected = [TensorSpec(name="left", shape=(3,), dtype="int64"), TensorSpec(name="right", shape=(1,))]
    assert expected == specs
    assert [[0, 1, 2], [3, 4, 5]] == rows["left"].tolist()
    assert [[1], [1]] == rows["right"].tolist()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([torch.ones(2, 3), torch.ones(3, 3)], "the same batch of 1 row or more .* {'left': 2, 'right': 3}"),
        (torch.ones(0, 3), "1 row or more"),
        (torch.ones(()), "leading batch dimension"),
        ([], "the inputs are empty"),
        ("text", "an input of type str does not fit"),
        (torch.ones(2, 3, dtype=torch.bfloat16), "bfloat16"),
    ],
)
def test_what_is_no_batch_of_tensors_is_refused(given: Any, message: str) -> None:
    """The error shows what inputs may be."""
    with pytest.raises(WorkloadError, match=message):
        inputs.from_values(given, Pair())


def test_inputs_by_name_reach_their_arguments() -> None:
    """In another order than the module's, tensors are passed by name; in its own order, the module stays itself."""
    module = Pair()
    left, right, scale = torch.full((1,), 3.0), torch.full((1,), 1.0), torch.full((1,), 5.0)
    named = {name: TensorSpec(name=name, shape=()) for name in ("left", "right", "scale")}

    swapped = inputs.by_position(module, [named["right"], named["left"]])
    scaled = inputs.by_position(module, [named["left"], named["right"], named["scale"]])

    assert (2.0,) == swapped(right, left)
    assert module is scaled
    assert 10.0 == scaled(left, right, scale)


def test_in_order_gives_a_flat_tuple_and_keeps_the_mode() -> None:
    """Nested outputs come flat, whether the module is in training or not."""

    class Nest(nn.Module):
        def forward(self, x: torch.Tensor) -> dict[str, Any]:
            return {"b": x, "a": [x + 1, None]}

    flat = inputs.in_order(Nest().eval())

    assert (1, 2) == flat(torch.tensor(1))
    assert not flat.training
    assert inputs.in_order(Nest().train()).training
