"""Figures of a site that do not agree with their data, their sweep or their code."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from ngbkit import cli
from ngbkit.dataset import storage
from ngbkit.publish import verify
from ngbkit.publish.manifest import DATASETS, FIGURES, Manifest
from ngbkit.workloads.base import hash_json


def test_a_site_as_built_agrees(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All figures of a site are verified as built."""
    assert (2, []) == verify(site)
    assert 0 == cli.main(["verify", str(site)])
    assert "All 2 figures agree" in capsys.readouterr().out


def test_every_dataset_of_a_composition_is_checked(site: Path, tmp_path: Path) -> None:
    """A missing one is reported."""
    copy = tmp_path / "site"
    shutil.copytree(site, copy)
    manifest = Manifest.read(copy)
    figure = manifest.figures[0]
    file = copy / FIGURES / f"{figure.id}.json"
    spec = json.loads(file.read_text())
    spec["usermeta"]["ngbkit"] = {"parts": [figure.provenance, {**figure.provenance, "dataset": "lost"}]}
    file.write_text(json.dumps(spec))
    both = replace(figure, provenance=spec["usermeta"]["ngbkit"], spec=hash_json(spec))
    replace(manifest, figures=(both,)).write(copy)

    _, findings = verify(copy)

    assert {"dataset", "sweep"} == {finding.what for finding in findings}
    assert all("lost.nc" in finding.said for finding in findings)


@pytest.mark.parametrize("subject", ["dataset", "spec", "sweep", "code"])
def test_each_disagreement_is_found(
    subject: str, site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A changed sample, mark, sweep or cell is reported for the figures that it concerns."""
    copy = tmp_path / "site"
    shutil.copytree(site, copy)
    figure = Manifest.read(copy).figures[0]
    (stem,) = figure.datasets.values()
    data = copy / DATASETS / f"{stem}.nc"
    if subject == "dataset":
        changed = storage.load(data)
        changed["latency"].values[0, 0, 0, 0, 0] *= 1.001
        storage.save(changed, data, overwrite=True)
    elif subject == "spec":
        file = copy / FIGURES / f"{figure.id}.json"
        file.write_text(file.read_text().replace('"width": ', '"width": 1', 1))
    elif subject == "sweep":
        file = data.with_suffix(".json")
        file.write_text(file.read_text().replace('"repeats": 10', '"repeats": 100'))
    else:
        file = copy / "notebooks" / "01-first.ipynb"
        file.write_text(file.read_text().replace("plot.throughput()", "plot.throughput(ci=0.5)"))
    _, findings = verify(copy)

    assert {subject} == {finding.what for finding in findings}
    assert figure.id in {finding.figure for finding in findings}
    assert (2 if subject in ("dataset", "sweep") else 1) == len(findings)
    assert 1 == cli.main(["verify", str(copy)])
    assert figure.id in capsys.readouterr().out
