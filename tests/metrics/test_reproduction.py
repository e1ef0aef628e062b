"""The findings of a published run, judged by a run on another machine."""

from __future__ import annotations

import pytest
import xarray as xr
from drawn import flipping, measured, network

from ngbkit.dataset.storage import Data
from ngbkit.metrics.reproduction import list_findings, summarize


def run(**more: tuple[str, ...]) -> Data:
    """A run in which openvino is the fastest compiler of two networks."""
    return measured(network("a"), network("b"), batch_sizes=[1], **more)


def slow_down(data: Data, factor: float) -> Data:
    """Slow openvino down on network b."""
    slower = data.copy(deep=True)
    slower["latency"].loc[{"compiler": "openvino", "workload": "b"}] *= factor
    return slower


def verdicts(first: Data, second: Data) -> dict[tuple[str, str], str]:
    return {(finding.subject, finding.claim): finding.verdict for finding in list_findings(first, second)}


def test_the_findings_of_a_run_hold_in_it() -> None:
    """The speed-ups and the fastest compilers hold, with the same numbers in both columns."""
    findings = list_findings(run(), run())

    assert {"holds"} == {finding.verdict for finding in findings}
    assert all(finding.first == finding.second for finding in findings)
    assert f"Of {len(findings)} findings, {len(findings)} hold." == summarize(findings)
    row = findings[0].to_row(("published", "here"))
    assert ["network", "finding", "published", "here", "verdict"] == list(row)


def test_the_opposite_does_not_hold() -> None:
    """A compiler that is slower here no longer is the fastest; one that is equal is not conclusive."""
    slower = verdicts(run(), slow_down(run(), 5))
    equal = verdicts(run(), slow_down(run(), 2.24))
    speedup, winner = ("openvino is faster than the baseline", "openvino is the fastest compiler")

    assert {"does not hold"} == {slower["b, batch 1", claim] for claim in (speedup, winner)}
    assert {"holds"} == {slower["a, batch 1", claim] for claim in (speedup, winner)}
    assert {"not conclusive here"} == {equal["b, batch 1", claim] for claim in (speedup, winner)}


def test_a_compiler_that_is_not_here_leaves_findings_open() -> None:
    """Its findings were not measured here; the other networks are judged."""
    lacking = verdicts(run(), run().drop_sel(compiler="openvino"))

    assert "not measured here" == lacking["a, batch 1", "openvino is faster than the baseline"]
    assert "not measured here" == lacking["a, batch 1", "openvino is the fastest compiler"]


def test_a_reversal_is_judged() -> None:
    """It holds where it is as sure, and does not where both compilers order the networks alike."""
    data = flipping()
    claim = ("a and b, batch 1", "their order differs between identity and openvino")
    ordered: xr.Dataset = data.copy(deep=True)
    ordered["latency"].loc[{"workload": "b", "compiler": "openvino"}] *= 9

    assert "holds" == verdicts(data, data)[claim]
    assert "does not hold" == verdicts(data, ordered)[claim]
    assert "not measured here" == verdicts(data, data.drop_sel(compiler="openvino"))[claim]


@pytest.mark.parametrize("factors", [{}, {"depth": (1, 2)}])
def test_each_device_of_the_author_is_judged_by_the_only_device_here(factors: dict[str, tuple[float, ...]]) -> None:
    """The labels of devices need not agree; a finding names the device of its author."""
    networks = [network("a", **factors), network("b")]
    first = measured(*networks, batch_sizes=[1], devices=("orin", "xavier"))
    findings = list_findings(first, measured(*networks, batch_sizes=[1]))

    assert {"orin", "xavier"} == {finding.subject.partition(":")[0] for finding in findings}
    assert "not measured here" not in {finding.verdict for finding in findings}


def test_a_speedup_that_is_not_conclusive_is_no_finding() -> None:
    """Its numbers are listed, and it holds nowhere."""
    findings = list_findings(slow_down(run(), 2.24), run())
    open_rows = [finding for finding in findings if finding.verdict == "not conclusive as published"]

    assert [("b, batch 1", "speed-up of openvino")] == [(row.subject, row.claim) for row in open_rows]
    assert summarize(findings).endswith(" 1 published speed-up is not conclusive.")
    assert "The published run has no conclusive finding." == summarize([])
