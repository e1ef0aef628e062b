"""What is checked before a run starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from ngbkit import registry, runs
from ngbkit.api import Sweep
from ngbkit.cluster import devices
from ngbkit.errors import MissingDependencyError
from ngbkit.runs import lifecycle
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
    monkeypatch.setattr(registry, "load", lambda group, name: source)
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
