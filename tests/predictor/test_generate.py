"""Networks to learn from: they build, they are what they are said to be, and a seed gives the same ones."""

from __future__ import annotations

import pytest
import torch

from ngbkit import predictor, registry, set_options
from ngbkit.errors import UsageError
from ngbkit.figures.rows import family
from ngbkit.predictor import generate
from ngbkit.workloads import counts, layers
from ngbkit.workloads.base import Workload


def output(workload: Workload) -> torch.Tensor:
    network = registry.load(registry.WORKLOADS, workload.source).build(workload, {})
    with torch.no_grad():
        found: torch.Tensor = network.module(torch.randn(2, *network.inputs[0].shape))
    return found


@pytest.mark.parametrize("workload", [*generate.stacks(16, 1), *generate.cells(4, 1)], ids=lambda one: one.name)
def test_what_is_drawn_up_runs(workload: Workload) -> None:
    """A network with an output that depends on its input."""
    found = output(workload)

    assert 2 == len(found)
    assert torch.isfinite(found).all()
    assert (found[0] - found[1]).abs().max() > 0


def test_families_are_in_the_names() -> None:
    """So that a whole family can be left out."""
    assert {*generate.BLOCKS} == {family(one.name) for one in generate.stacks(16)}
    assert {"nasbench"} == {family(one.name) for one in generate.cells(5)}


@pytest.mark.parametrize("sort", [generate.cells, generate.stacks, generate.zoo])
def test_a_seed_gives_the_same_networks(sort) -> None:
    """And another one others; none comes twice."""
    first, again, other = sort(12, 0), sort(12, 0), sort(12, 1)

    assert [one.id for one in first] == [one.id for one in again]
    assert [one.id for one in first] != [one.id for one in other]
    assert 12 == len({one.name for one in first})


def test_a_cell_is_that_of_the_benchmark() -> None:
    """Five cells a stage, all edges 3x3: NAS-Bench-201's own table has 1.53 M parameters and 220 M of what are MACs."""
    whole = counts.count(layers.build(generate.nasbench201([3] * 6, cells=5), {}))

    assert pytest.approx(1.53e6, rel=0.01) == whole.parameters
    assert pytest.approx(220e6, rel=0.01) == whole.macs


def test_a_cell_that_leads_nowhere_is_refused() -> None:
    """As is one of the wrong length."""
    with pytest.raises(UsageError, match="does not depend on its input"):
        generate.nasbench201([1, 1, 1, 0, 0, 0])
    with pytest.raises(UsageError, match="six numbers"):
        generate.nasbench201([1, 2])


def test_everything_is_of_all_sorts(tmp_path) -> None:
    """And each has a graph."""
    found = list(generate.everything(6))
    with set_options(state_dir=tmp_path):
        graphs = [predictor.graph(one) for one in (found[0], found[2])]

    assert ["layers"] * 4 + ["timm"] * 2 == [one.source for one in found]
    assert all(one.macs for one in graphs)
