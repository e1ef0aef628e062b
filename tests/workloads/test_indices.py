"""Indices beyond their table."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

from ngbkit.errors import WorkloadError
from ngbkit.workloads.base import BATCH, TensorSpec
from ngbkit.workloads.indices import check_indices

SPECS = [TensorSpec(name="x", shape=(BATCH, 4)), TensorSpec(name="ids", shape=(BATCH, 3), dtype="int64")]
X, IDS = torch.ones(2, 4), torch.tensor([[0, 1, 2], [2, 7, 1]])


class Apply(nn.Module):
    """Applies a function of its table, noise and indices."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function, self.table = function, nn.Parameter(torch.ones(5, 4))

    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        return self.function(self.table, x, ids)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda table, _, ids: functional.embedding(ids, table), "input ids: got 7; .* 0 to 4, as table has 5 rows"),
        (lambda table, _, ids: functional.embedding_bag(ids, table), "input ids: got 7; .* as table has 5 rows"),
        (lambda table, _, ids: table[ids], "input ids: got 7; .* as table has 5 rows"),
        (lambda table, _, ids: table.index_select(0, ids[1]), "input ids: got 7; .* as table has 5 rows"),
        (lambda _, x, ids: x.gather(1, ids), "input ids: got 7; .* 0 to 3, as a table has 4 rows"),
        (lambda table, _, ids: functional.embedding(ids + 3, table), "the network computes: got 5; .* 5 rows"),
        (lambda table, _, ids: functional.embedding(ids - 7, table), "the network computes: got -7; .* 0 to 4"),
    ],
)
def test_an_index_beyond_its_table_is_named(function: Callable[..., torch.Tensor], message: str) -> None:
    """The error has the input, the value, and the rows of the table."""
    with pytest.raises(WorkloadError, match=message):
        check_indices(SPECS, Apply(function), [X, IDS])


@pytest.mark.parametrize("function", [lambda table, x, ids: table[ids % 5 - 5], lambda table, x, ids: x @ x])
def test_another_error_is_none_of_an_index(function: Callable[..., torch.Tensor]) -> None:
    """Nothing is raised for indices in their table, of which some count from its end, nor for other errors."""
    assert check_indices(SPECS, Apply(function), [X, IDS]) is None
