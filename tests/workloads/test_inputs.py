"""Inputs that a user describes, in every valid form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from ngbkit.errors import WorkloadError
from ngbkit.workloads import inputs
from ngbkit.workloads.base import BATCH, TensorSpec


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
    """A shape, a list or a dict of shapes becomes float32 inputs named after arguments."""
    call = inputs.parse_shapes(input_shape, module)

    assert [TensorSpec(name=name, shape=(BATCH, *shape)) for name, shape in expected.items()] == call.specs


@pytest.mark.parametrize(("dtype", "expected"), [(torch.float16, "float16"), (torch.float64, "float64")])
def test_shapes_have_the_type_of_the_weights(dtype: torch.dtype, expected: str) -> None:
    """A module in half precision takes no float32."""
    call = inputs.parse_shapes((4,), nn.Linear(4, 2).to(dtype))

    assert [expected] == [spec.dtype for spec in call.specs]


@pytest.mark.parametrize("input_shape", ["3x8x8", (3, -1), (3.0, 8), {"left": None}, [(3,), "x"], None])
def test_an_invalid_shape_is_rejected(input_shape: Any) -> None:
    """The error shows the valid forms."""
    with pytest.raises(
        WorkloadError, match=r"invalid input_shape: got .*; expected, without the batch dimension, a tuple such as"
    ):
        inputs.parse_shapes(input_shape, Pair())


@pytest.mark.parametrize("wrap", [lambda a, b: [a, b], lambda a, b: (a, b), lambda a, b: {"left": a, "right": b}])
def test_tensors_become_inputs_with_their_rows(wrap: Any) -> None:
    """Tensors and arrays become inputs with their shape, their dtype and every row."""
    left, right = torch.arange(6).reshape(2, 3), np.ones((2, 1), np.float32)

    call = inputs.parse_values(wrap(left, right), Pair())

    expected = [TensorSpec(name="left", shape=(BATCH, 3), dtype="int64"), TensorSpec(name="right", shape=(BATCH, 1))]
    assert expected == call.specs
    assert [[0, 1, 2], [3, 4, 5]] == call.examples["left"].tolist()
    assert [[1], [1]] == call.examples["right"].tolist()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (torch.ones(0, 3), "the same number >= 1"),
        ([], "invalid inputs: got none, without a tensor; expected a tensor"),
        ("text", "invalid inputs: got str, without a tensor; expected a tensor"),
        (torch.ones(2, 3, dtype=torch.cfloat), r"got complex64; expected real numbers.*view_as_real"),
    ],
)
def test_invalid_tensors_are_rejected(values: Any, message: str) -> None:
    """The error shows the valid forms."""
    with pytest.raises(WorkloadError, match=message):
        inputs.parse_values(values, Pair())


def build(module: nn.Module, values: Any, **batch_axes: int | None) -> tuple[inputs.ModuleCall, nn.Module]:
    call = inputs.parse_values(values, module, batch_axes)
    return call, inputs.wrap(module, call)


def test_inputs_by_name_reach_their_arguments() -> None:
    """Inputs by name reach their arguments, and the module is wrapped only if their order differs."""
    module = Pair()
    left, right, scale = torch.full((1,), 3.0), torch.full((1,), 1.0), torch.full((1,), 5.0)

    _, swapped = build(module, {"right": right, "left": left})
    _, scaled = build(module, {"left": left, "right": right, "scale": scale})

    assert (2.0,) == swapped(right, left)
    assert module is scaled
    assert 10.0 == scaled(left, right, scale)


class Nest(nn.Module):
    """Takes a nested argument, and returns nested outputs."""

    def forward(self, x: torch.Tensor, past: Any) -> dict[str, Any]:
        keys, values = past
        return {"b": x + keys, "a": [values, None, 3]}


class Tower(nn.Module):
    """Takes one dict."""

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return batch["user"] * batch["item"]


def test_nested_inputs_reach_their_places() -> None:
    """Each tensor is an input, named after its argument and its place in it, and outputs are a flat tuple."""
    x = torch.ones(2, 1)

    call, wrapped = build(Nest().eval(), (x, (x + 1, x + 2)))

    assert ["x", "past.0", "past.1"] == [spec.name for spec in call.specs]
    assert [[[3.0], [3.0]], [[3.0], [3.0]]] == [output.tolist() for output in wrapped(x, x + 1, x + 2)]
    assert not wrapped.training


def test_a_dict_may_be_the_argument_itself() -> None:
    """A dict is the argument itself if no argument has the name of a key."""
    call, wrapped = build(Tower(), {"user": torch.ones(3, 4), "item": torch.full((3, 4), 2.0)})

    assert ["user", "item"] == [spec.name for spec in call.specs]
    assert 2.0 == wrapped(torch.ones(1), torch.full((1,), 2.0))[0]


@pytest.mark.parametrize(
    ("values", "batch_axes", "shapes"),
    [
        ((torch.ones(2, 3), torch.tensor(5)), {}, [(BATCH, 3), ()]),
        ((torch.ones(1, 3), torch.ones(5, 3)), {}, [(1, 3), (BATCH, 3)]),
        ((torch.ones(1, 3), torch.ones(1, 3)), {}, [(BATCH, 3), (BATCH, 3)]),
        ((torch.ones(7, 2), torch.ones(2, 3)), {"left": 1}, [(7, BATCH), (BATCH, 3)]),
        ((torch.ones(2, 3), torch.ones(2, 2)), {"right": None}, [(BATCH, 3), (2, 2)]),
    ],
)
def test_the_batch_is_where_the_rows_are(
    values: Any, batch_axes: dict[str, int | None], shapes: list[tuple[int | str, ...]]
) -> None:
    """A scalar has none, nor has one row beside several; otherwise the user says where it is."""
    call, _ = build(Pair(), values, **batch_axes)

    assert shapes == [spec.shape for spec in call.specs]


def test_several_modules_share_values_by_name() -> None:
    """Each gets those that it takes."""
    values = {"left": torch.ones(2, 3), "other": torch.ones(2, 4)}

    call = inputs.parse_values(values, Pair(), shared=True)

    assert ["left"] == [spec.name for spec in call.specs]


def test_a_module_of_one_row_runs_on_one_row() -> None:
    """A module that fails on two rows runs on one; a module that fails on both is refused."""

    class One(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.view(1, 4)

    shape = inputs.parse_shapes((4,), One())
    wrong = inputs.parse_shapes((5,), One())

    _, arrays = inputs.wrap_checked("one", One(), shape, 0)

    assert [(1, 4)] == [array.shape for array in arrays]
    with pytest.raises(WorkloadError, match=r"invalid inputs of one: fed x float32 \(2, 5\), it raised RuntimeError"):
        inputs.wrap_checked("one", One(), wrong, 0)


@pytest.mark.parametrize("outputs", [None, 3, {"a": None}])
def test_a_module_without_a_tensor_is_rejected(outputs: Any) -> None:
    """The error says what it returned."""

    class Nothing(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return outputs

    with pytest.raises(WorkloadError, match=rf"returned no tensor, but a {type(outputs).__name__}"):
        inputs.wrap_checked("nothing", Nothing(), inputs.parse_shapes((4,), Nothing()), 0)
