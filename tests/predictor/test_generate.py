"""Generated networks build, have the sizes of their benchmark, and are the same for the same seed."""

from __future__ import annotations

import pytest
import torch

from ngbkit import predictor, registry, set_options
from ngbkit.errors import UsageError
from ngbkit.predictor import generate
from ngbkit.workloads import counts, layers
from ngbkit.workloads.base import Workload
from ngbkit.workloads.paper import find_family


def compute_output(workload: Workload) -> torch.Tensor:
    network = registry.load(registry.WORKLOADS, workload.source).build(workload, {})
    with torch.no_grad():
        result: torch.Tensor = network.module(torch.randn(network.inputs[0].bind(2)))
    return result


@pytest.mark.parametrize(
    "workload", [*generate.generate_stacks(16, 1), *generate.generate_cells(4, 1)], ids=lambda workload: workload.name
)
def test_what_is_drawn_up_runs(workload: Workload) -> None:
    """A network has an output that depends on its input."""
    outputs = compute_output(workload)

    assert 2 == len(outputs)
    assert torch.isfinite(outputs).all()
    assert (outputs[0] - outputs[1]).abs().max() > 0


def test_families_are_in_the_names() -> None:
    """A split can thus leave out a whole family."""
    assert {*generate.BLOCKS} == {find_family(workload.name) for workload in generate.generate_stacks(16)}
    assert {"nasbench"} == {find_family(workload.name) for workload in generate.generate_cells(5)}


@pytest.mark.parametrize("generate_some", [generate.generate_cells, generate.generate_stacks, generate.generate_zoo])
def test_a_seed_gives_the_same_networks(generate_some) -> None:
    """Another seed gives other networks; all are distinct."""
    first, again, other = generate_some(12, 0), generate_some(12, 0), generate_some(12, 1)

    assert [workload.id for workload in first] == [workload.id for workload in again]
    assert [workload.id for workload in first] != [workload.id for workload in other]
    assert 12 == len({workload.name for workload in first})


def test_a_cell_is_that_of_the_benchmark() -> None:
    """NAS-Bench-201 reports 1.53 M parameters and 220 M MACs for five cells per stage with 3x3 edges."""
    totals = counts.count(layers.build(generate.build_nasbench201([3] * 6, cells=5), {}))

    assert pytest.approx(1.53e6, rel=0.01) == totals.parameters
    assert pytest.approx(220e6, rel=0.01) == totals.macs


def test_a_cell_that_leads_nowhere_is_refused() -> None:
    """A cell of the wrong length is rejected too."""
    with pytest.raises(UsageError, match="expected a path from node 0 to node 3"):
        generate.build_nasbench201([1, 1, 1, 0, 0, 0])
    with pytest.raises(UsageError, match="expected six integers"):
        generate.build_nasbench201([1, 2])


def test_everything_is_of_all_sorts(tmp_path) -> None:
    """Each network has a graph."""
    workloads = list(generate.generate_all(6))
    with set_options(state_dir=tmp_path):
        graphs = [predictor.graph(workload) for workload in (workloads[0], workloads[2])]

    assert ["layers"] * 4 + ["timm"] * 2 == [workload.source for workload in workloads]
    assert all(workload.macs for workload in graphs)
