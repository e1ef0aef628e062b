"""The batch of a module: where it was seen to treat a dimension so, at two sizes, row by row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from ngbkit.workloads import inputs
from ngbkit.workloads.base import BATCH


class Apply(nn.Module):
    """Applies a function of its parts and its arguments."""

    def __init__(self, function: Callable[..., Any], *parts: nn.Module) -> None:
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(parts)

    def forward(self, *arguments: Any) -> Any:
        return self.function(*self.parts, *arguments)


def settle(module: nn.Module, values: Any, **batch_axes: int | None) -> inputs.ModuleCall:
    call = inputs.parse_values(values, module.eval(), batch_axes)
    wrapped, arrays = inputs.wrap_checked("net", module, call, 0)
    return inputs.settle_batch(call, wrapped, arrays, 0)


def pool(convolution: nn.Module, pictures: list[torch.Tensor]) -> list[torch.Tensor]:
    return [convolution(picture.mean(0)[None, None]) for picture in pictures]


def propagate(line: nn.Module, nodes: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
    features = line(nodes)
    summed: torch.Tensor = features.index_add(0, edges[1], features[edges[0]])
    return summed


def run_packed(gru: nn.Module, steps: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    packed = nn.utils.rnn.pack_padded_sequence(steps, lengths, batch_first=True)
    return nn.utils.rnn.pad_packed_sequence(gru(packed)[0], batch_first=True)[0]


def smooth(steps: torch.Tensor) -> torch.Tensor:
    return functional.avg_pool1d(steps.T[None], 3, 1, 1)[0].T


def count_frames(convolution: nn.Module, frames: torch.Tensor) -> torch.Tensor:
    means: torch.Tensor = convolution(frames).mean((2, 3)).view(-1, 8, 4)
    return torch.cat([means[:, 1:, :2], means[:, :-1, 2:]], 2).mean(1)


def attend(_: nn.Module, steps: torch.Tensor) -> torch.Tensor:
    """Attend to steps of the first dimension, which sees each alone unless two are near."""
    shares = torch.einsum("tbd,sbd->tsb", steps, steps).softmax(1)
    return torch.einsum("tsb,sbd->tbd", shares, steps)


def apply_mask(features: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Refuse a mask of other numbers than zeros and ones."""
    assert bool(((mask == 0) | (mask == 1)).all())
    return features * mask


LINE = nn.Linear(8, 4)
NORM = nn.BatchNorm1d(4, track_running_stats=False)
ENCODER = nn.TransformerEncoderLayer(8, 2, 16)
PICTURES = [torch.rand(3, 9, 9), torch.rand(3, 7, 9)]
RING = torch.tensor([[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0]])


@pytest.mark.parametrize(
    ("module", "values", "size", "shapes"),
    [
        pytest.param(LINE, torch.randn(5, 8), None, [(BATCH, 8)], id="rows"),
        pytest.param(LINE, torch.randn(1, 8), None, [(BATCH, 8)], id="one row"),
        pytest.param(nn.Linear(8, 4).half(), torch.randn(5, 8).half(), None, [(BATCH, 8)], id="16 bits"),
        pytest.param(nn.Conv2d(3, 4, 3), torch.randn(3, 9, 9), 1, [(3, 9, 9)], id="picture without a batch"),
        pytest.param(nn.Conv1d(2, 4, 3), torch.randn(2, 50), 1, [(2, 50)], id="sound without a batch"),
        pytest.param(Apply(smooth), torch.randn(40, 4), 1, [(40, 4)], id="symmetric in time"),
        pytest.param(Apply(pool, nn.Conv2d(1, 4, 3)), (PICTURES,), 1, [(3, 9, 9), (3, 7, 9)], id="list of pictures"),
        pytest.param(
            Apply(lambda line, clouds: torch.stack([line(cloud).mean(0) for cloud in clouds]), nn.Linear(8, 4)),
            ([torch.rand(5, 8), torch.rand(7, 8)],),
            1,
            [(5, 8), (7, 8)],
            id="ragged list",
        ),
        pytest.param(
            Apply(propagate, nn.Linear(8, 4)), (torch.rand(6, 8), RING), 1, [(6, 8), (2, 6)], id="graph of edges"
        ),
        pytest.param(
            Apply(propagate, nn.Linear(8, 4)),
            (torch.rand(2, 8), RING[:, :2] % 2),
            1,
            [(2, 8), (2, 2)],
            id="graph of as many nodes as rows",
        ),
        pytest.param(nn.LSTM(8, 4), torch.randn(10, 3, 8), None, [(10, BATCH, 8)], id="sequence first"),
        pytest.param(
            nn.GRU(8, 4),
            (torch.randn(10, 3, 8), torch.zeros(1, 3, 4)),
            None,
            [(10, BATCH, 8), (1, BATCH, 4)],
            id="sequence first, with a state",
        ),
        pytest.param(nn.GRU(8, 4, batch_first=True), torch.randn(3, 9, 8), None, [(BATCH, 9, 8)], id="batch first"),
        pytest.param(nn.LSTM(8, 4), torch.randn(10, 8), 1, [(10, 8)], id="sequence without a batch"),
        pytest.param(ENCODER, torch.randn(6, 3, 8), None, [(6, BATCH, 8)], id="transformer, sequence first"),
        pytest.param(
            Apply(lambda gru, steps: gru(steps)[0].reshape(-1, 4), nn.GRU(8, 4)),
            torch.randn(7, 4, 8),
            None,
            [(7, BATCH, 8)],
            id="rows apart in the output",
        ),
        pytest.param(
            Apply(run_packed, nn.GRU(8, 4, batch_first=True)),
            (torch.randn(3, 7, 8), torch.tensor([7, 5, 2])),
            None,
            [(BATCH, 7, 8), (BATCH,)],
            id="sorted lengths",
        ),
        pytest.param(
            Apply(functional.linear),
            (torch.randn(4, 8), torch.randn(6, 8), torch.randn(6)),
            None,
            [(BATCH, 8), (6, 8), (6,)],
            id="weights as inputs",
        ),
        pytest.param(
            Apply(lambda queries, mask: functional.scaled_dot_product_attention(queries, queries, queries, mask)),
            (torch.randn(3, 6, 8), torch.zeros(6, 6)),
            None,
            [(BATCH, 6, 8), (6, 6)],
            id="mask of all samples",
        ),
        pytest.param(
            Apply(attend, nn.GRU(64, 8)), torch.randn(5, 3, 64), None, [(5, BATCH, 64)], id="attention to near steps"
        ),
        pytest.param(
            Apply(apply_mask), (torch.randn(4, 8), torch.eye(4, 8)), None, [(BATCH, 8)] * 2, id="mask that is checked"
        ),
        pytest.param(Apply(lambda x: x - x.mean(0)), torch.randn(3, 8), None, [(BATCH, 8)], id="mean over the batch"),
        pytest.param(NORM, torch.randn(4, 4), None, [(BATCH, 4)], id="norm over the batch"),
        pytest.param(
            Apply(lambda x, y: x @ y.T), (torch.randn(4, 8),) * 2, None, [(BATCH, 8)] * 2, id="pairs of all samples"
        ),
        pytest.param(Apply(lambda x: x.chunk(2)[0]), torch.randn(4, 8), 1, [(4, 8)], id="half of the rows"),
        pytest.param(Apply(lambda x: x.square().mean()), torch.randn(4, 8), 1, [(4, 8)], id="loss"),
        pytest.param(Apply(lambda x: x.amax(0)), torch.randn(100, 3), 1, [(100, 3)], id="cloud of points"),
        pytest.param(Apply(lambda x: x.view(3, 8) * 2), torch.randn(3, 8), 3, [(BATCH, 8)], id="fixed batch"),
        pytest.param(Apply(lambda x: x.view(1, 8) * 2), torch.randn(1, 8), 1, [(BATCH, 8)], id="fixed batch of one"),
        pytest.param(
            Apply(count_frames, nn.Conv2d(3, 4, 3)), torch.randn(8, 3, 6, 6), 1, [(8, 3, 6, 6)], id="frames of a video"
        ),
        pytest.param(
            Apply(functional.dropout), torch.randn(4, 8), None, [(BATCH, 8)], id="random, with rows in the output"
        ),
        pytest.param(
            Apply(lambda x: [row * 2 for row in x]), torch.randn(4, 8), None, [(BATCH, 8)], id="list of outputs"
        ),
        pytest.param(Apply(lambda x: x * 2), torch.tensor(3.0), 1, [()], id="scalar"),
    ],
)
def test_a_batch_is_where_a_module_treats_rows_alike(
    module: nn.Module, values: Any, size: int | None, shapes: list[Any]
) -> None:
    """A batch varies if outputs follow it and rows may change places; else it is fixed, or a sample is a call."""
    call = settle(module, values)

    assert (size, shapes) == (call.batch_size, [spec.shape for spec in call.specs])


def test_a_named_batch_needs_only_run() -> None:
    """The user knows better where no output follows the batch, but not where a module fails at another size."""
    loss = settle(Apply(lambda x: x.square().mean()), torch.randn(4, 8), input0=0)
    fixed = settle(Apply(lambda x: x.view(4, 8).mean()), torch.randn(4, 8), input0=0)

    assert [None, 4] == [loss.batch_size, fixed.batch_size]


def test_a_fixed_batch_has_its_reason() -> None:
    """The reason says what was seen, and how to name a batch."""
    picture = settle(nn.Conv2d(3, 4, 3), torch.randn(3, 9, 9))
    loss = settle(Apply(lambda x: x.square().mean()), torch.randn(4, 8))
    fixed = settle(Apply(lambda x: x.view(3, 8) * 2), torch.randn(3, 8))

    expected = [
        "dimension 0 of its input input is no batch, as it fails at another size of it, so that a sample is a call. If "
        "it is one, name it: --batch-axis input=0",
        "dimension 0 of its input input0 is no batch, as no output follows its size, so that a sample is a call. If "
        "it is one, name it: --batch-axis input0=0",
        "its batch is fixed, as it fails at another number of rows than 3",
    ]
    assert expected == [call.batch_reason for call in (picture, loss, fixed)]
