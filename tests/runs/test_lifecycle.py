"""What is checked before a run starts."""

from __future__ import annotations

from pathlib import Path

import pytest
import synthetic

from ngbkit import registry, runs
from ngbkit.api import Sweep
from ngbkit.cluster import devices
from ngbkit.errors import MissingDependencyError
from ngbkit.runs import lifecycle
from ngbkit.runs.run import Run
from ngbkit.runs.run_context import RunContext
from ngbkit.workloads.base import Source, Workload


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Source:
    """A source of networks whose package is not installed."""
    source = Source(
        name="far",
        summary="networks of another package",
        build=lambda workload, factors: None,  # type: ignore[arg-type,return-value]
        parse=lambda text: None,
        complete=lambda prefix: (),
        preload=("no_such_package",),
        extra="far",
    )
    load = registry.load
    monkeypatch.setattr(
        registry, "load", lambda group, name: source if group == registry.WORKLOADS else load(group, name)
    )
    return source


def test_a_missing_package_is_an_error_before_measuring(source: Source) -> None:
    """The error of a missing package has the extra, and no run remains."""
    sweep = Sweep([Workload(name="net", source=source.name, spec={})], compilers=["identity"])
    with pytest.raises(MissingDependencyError, match=r"no_such_package is not installed.*ngbkit\[far\]"):
        lifecycle.start(sweep)

    assert [] == list(runs.summaries())


@pytest.mark.parametrize("table", ['launch = "ssh"\nhost = "orin"', 'launch = "local"\npython = "/other/python"'])
def test_another_python_has_packages_of_its_own(
    source: Source, table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client without torch measures on a device that has it."""
    file = tmp_path / devices.NAME
    file.write_text(f"[far]\n{table}\n")
    file.chmod(0o600)
    monkeypatch.chdir(tmp_path)
    sweep = Sweep([Workload(name="net", source=source.name, spec={})], compilers=["identity"], devices=["far"])

    lifecycle._check_devices(sweep, None)


def test_a_cell_resumes_the_run_that_its_kernel_left(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same cell with the same sweep goes on with the run, and any other one begins another."""
    sweep = Sweep([Workload(name="net", source="timm", spec={"name": "net"})], batch_sizes=[1, 2], repeats=5)
    context = RunContext(notebook="blocks.ipynb", cell="%%ngbench")
    monkeypatch.setattr(RunContext, "capture", lambda note="": context)
    monkeypatch.setattr(lifecycle, "_check_devices", lambda sweep, engines: None)
    monkeypatch.setattr(Run, "_begin", lambda run: run._note_state() or run)
    left = lifecycle.start(sweep)
    left._journal.finish(synthetic.make_records(sweep)[:1])
    left._journal.close()
    resumed = lifecycle.start(sweep, reuses=True)
    resumed._journal.close()
    begun = [lifecycle.start(sweep)]
    context = RunContext(notebook="other.ipynb", cell="%%ngbench")
    begun.append(lifecycle.start(sweep, reuses=True))

    assert left.id == resumed.id
    assert 1 == len(resumed.statuses)
    assert "whose kernel ended after 1 of 2 trials" in resumed.warnings["resumed"][0]
    assert not {run.id for run in begun} & {left.id}
    for run in begun:
        run._journal.close()
