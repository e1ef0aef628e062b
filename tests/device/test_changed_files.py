"""The network that a run began with is the one that it measures to the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import plans
import pytest

from ngbkit.api import Sweep
from ngbkit.device import plan
from ngbkit.workloads import cell

SOURCE = """import torch
from layers import depth
model = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(depth)])
input_shape = (4,)
"""


@pytest.mark.parametrize("step", ["compile", "measured"])
def test_a_network_that_changes_during_its_run_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """No run mixes two networks: neither a child that builds a new one, nor a later batch size, is measured."""
    monkeypatch.chdir(tmp_path)
    layers = tmp_path / "layers.py"
    layers.write_text("depth = 1\n")
    sweep = Sweep(cell.from_source(SOURCE), ["identity"], [1, 4], repeats=5, threads=1)

    def edit(event: dict[str, Any]) -> None:
        if event.get("step") == step or (step == "measured" and event["kind"] == "record"):
            layers.write_text("depth = 9\n")

    assert "finished" == plan.carry_out(plans.build_spec(sweep), edit)
    with plans.open_journal() as journal:
        records = {record.trial_id: record for record in journal.records()}
    first, second = (records[trial.id] for trial in sweep.trials())

    assert ("failed", "build") == (second.status, second.stage)
    assert f"{layers} has changed since this run began" in second.error
    assert ("ok" if step == "measured" else "failed") == first.status
