"""The grid of a run's trials has a sign for each, and words for screen readers."""

from __future__ import annotations

import re
from pathlib import Path

from ngbkit.api import Sweep
from ngbkit.panels import watch
from ngbkit.panels.page import Page
from ngbkit.panels.watch import WatchSection, describe_trial, group_trials
from ngbkit.runs import Run
from ngbkit.sweep.journal import Journal
from ngbkit.workloads.base import Workload


def sweep(batch_sizes=(1, 4, 8), devices=("cpu",), networks=("a<b>", "c")) -> Sweep:
    workloads = [Workload(name=name, source="timm", spec={"name": name}) for name in networks]
    return Sweep(workloads, ["identity", "tvm"], batch_sizes, devices=devices, repeats=5)


def render(grid_sweep: Sweep, statuses: dict[str, str], row: str) -> str:
    """Render a row of the grid."""
    section = WatchSection(Page(), print)
    section._cells = group_trials(grid_sweep)
    return section._render_row(row, statuses)


def test_every_trial_has_its_sign() -> None:
    """Signs are in the order of batch sizes, pending trials included."""
    grid_sweep = sweep()
    ids = {(trial.workload, trial.compiler, trial.batch_size): trial.id for trial in grid_sweep.trials()}
    statuses = {ids["c", "tvm", 1]: "crashed", ids["c", "tvm", 4]: "unsupported", ids["c", "identity", 1]: "ok"}
    html = render(grid_sweep, statuses, "c")

    assert ["●○○", "✕–○"] == ["".join(re.findall(r">(.)</button>", cell)) for cell in html.split("<td")[1:]]
    assert 'title="1 crashed, 1 unsupported, 1 pending"' in html
    assert 'aria-label="c, tvm, batch 1 on cpu: crashed"' in html


def test_names_are_escaped() -> None:
    """A network's name is text, not HTML."""
    html = render(sweep(), {}, "a<b>")

    assert "a&lt;b&gt;" in html
    assert "<b>" not in html


def test_a_cell_of_many_trials_has_counts() -> None:
    """A cell with more trials than signs counts them, and has a button for the first without a result."""
    grid_sweep = sweep(batch_sizes=range(1, 41))
    trial = grid_sweep.trials()[3]
    html = render(grid_sweep, {trial.id: "timeout"}, trial.workload)

    assert "39 pending" in html
    assert "1 timeout" in html
    assert f'data-value="{trial.id}"' in html


def test_devices_have_rows_of_their_own() -> None:
    """A row names the device where there are several."""
    rows = {row for row, _ in group_trials(sweep(devices=("cpu", "orin")))}

    assert {"a<b> on cpu", "a<b> on orin", "c on cpu", "c on orin"} == rows


def test_thousands_of_networks_are_one_row() -> None:
    """A grid with too many rows has their sum, so that each message stays short."""
    cells = group_trials(sweep(networks=[f"net{number}" for number in range(300)]))

    assert {("all networks", "identity"), ("all networks", "tvm")} == set(cells)
    assert 600 * 3 == sum(map(len, cells.values()))


def test_a_trial_is_described_by_its_labels() -> None:
    """A trial is one line with all of its labels."""
    block = Sweep("blocks.conv", ["identity"], [2], factors={"width": 8, "depth": 1})

    assert "conv, width 8, depth 1, identity, batch 2 on cpu" == describe_trial(block.trials()[0])


def test_other_work_is_shown(tmp_path: Path) -> None:
    """A run that is opened again shows the other work of its last observation."""
    warning = "other work uses 100 % of all cores (stress): end it"
    with Journal(tmp_path / "journal.sqlite") as journal:
        journal.note("environment", "cpu", {"conditions": {"other_busy_percent": 99.6, "warnings": [warning]}})
    run = Run(sweep(), "a", tmp_path, (), {})
    run._journal.close()

    assert "other work uses 100 % of all cores (stress)" in "".join(watch._render_bars(run))
