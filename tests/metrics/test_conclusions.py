"""What a run lets its user conclude."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from synthetic_records import build_record

from ngbkit import figures
from ngbkit.api import Sweep
from ngbkit.dataset import storage
from ngbkit.dataset.assembly import assemble
from ngbkit.dataset.storage import Data
from ngbkit.metrics import tables
from ngbkit.metrics.conclusions import conclude
from ngbkit.metrics.disturbances import describe_contention
from ngbkit.metrics.draws import HOSTED_SD, PROBED_SD
from ngbkit.metrics.rendering import to_texts
from ngbkit.report import Report
from ngbkit.workloads.base import Workload

ROUNDS = 20
FIGURES = ("throughput", "speedup")


def measure(
    mlp: Workload,
    speeds: Mapping[str, float],
    contended: Mapping[str, Sequence[int]] | None = None,
    devices: Sequence[str] = ("cpu",),
    batch_sizes: Sequence[int] = (1,),
    unequal: bool = False,
    **facts: float,
) -> Data:
    """One sample a round of compilers that are so many times as fast as identity; larger batches may be less noisy."""
    sweep = Sweep(mlp, list(speeds), list(batch_sizes), repeats=ROUNDS, devices=list(devices))
    generator = np.random.default_rng(0)
    records = [
        build_record(
            trial,
            1 / speeds[trial.compiler] * generator.normal(1, 0.05 * trial.batch_size**-unequal, ROUNDS),
            contended_samples=tuple((contended or {}).get(trial.compiler, ())),
            **facts,
        )
        for trial in sweep.trials()
    ]
    return assemble(sweep, records)


def list_details(report: Report) -> list[str]:
    """The sentences behind a verdict."""
    return list(report.more.notes)


def test_a_run_without_results_explains_no_interval(mlp: Workload) -> None:
    """A run of which each trial failed has no conclusion, on a virtual machine too."""
    data = measure(mlp, {"identity": 1.0, "openvino": 3.0})
    data = data.assign(latency=data["latency"] * np.nan)
    data.attrs["environments"] = json.dumps({"cpu": {"conditions": {"virtual_machine": True}}})

    assert "" == conclude(data).to_text()


def test_a_sure_winner_is_named_with_its_lead(mlp: Workload) -> None:
    """The verdict of a quiet machine is the fastest compiler and its lead over the next."""
    conclusions = conclude(measure(mlp, {"identity": 1.0, "onnxruntime": 2.0, "openvino": 3.0}))
    (line,) = conclusions.lines

    assert re.fullmatch(r"Fastest: openvino for mlp batch 1, 1\.\d+ ± 0\.\d+ times onnxruntime\.", line)
    assert [] == list_details(conclusions)


def test_a_virtual_machine_explains_the_width_of_its_intervals(mlp: Workload) -> None:
    """A detail explains the wide intervals of a virtual machine that has no history, and less so with probes."""
    data = measure(mlp, {"identity": 1.0, "openvino": 3.0})
    hosted = {"conditions": {"virtual_machine": True}}
    state = {"low_s": 1e-7, "high_s": 3e-7, "mean_s": 2e-7, "share": 1.0}
    lines, halves = [], []
    for device in (hosted, {**hosted, "states": {"trip_s": [state]}}):
        data.attrs["environments"] = json.dumps({"cpu": device})
        lines += list_details(conclude(data))
        speedup = data.ngb.speedup(ci=0.95).sel(compiler="openvino")
        halves.append(float(np.log(speedup["ci_high"] / speedup["ci_low"]).squeeze()) / 2)
    data.attrs["environments"] = json.dumps({"cpu": {**hosted, "history": {"deviations": {"openvino": 0.01}}}})

    for line, deviation in zip(lines, (HOSTED_SD, PROBED_SD), strict=True):
        assert line.startswith(
            f"Intervals of speed-ups allow for {100 * deviation:.2g} % (standard deviation, assumed) by which the host "
        )
        assert "`ngbkit selfcheck --history`" in line
    assert halves[0] > 1.2 * halves[1]
    assert [] == list_details(conclude(data))


@pytest.mark.parametrize(
    ("speed", "advice"),
    [
        (2.06, "Next: `ngbkit runs --settle RUN` measures "),
        (2.0004, "Choose any of these: 30 waves would not tell them apart."),
    ],
)
def test_a_tie_is_not_conclusive(mlp: Workload, speed: float, advice: str) -> None:
    """The verdict of a tie has both rivals, their ratio and one next step."""
    data = measure(mlp, {"identity": 1.0, "onnxruntime": 2.0, "openvino": speed})
    tie, step = conclude(data).lines

    assert tie.startswith("Not conclusive: the fastest in 1 of 1 groups (mlp batch 1: ")
    ratio = r"[\d.]+ (± [\d.]+|\([\d.]+ to [\d.]+\)) times as fast"
    assert re.search(rf"(onnxruntime or openvino|openvino or onnxruntime), {ratio}\)", tie)
    assert "p = " not in tie
    assert step.startswith(advice)


def test_a_contended_winner_is_not_sure(mlp: Workload) -> None:
    """A lead of any size is not conclusive if its rounds were contended, and the next step needs a quiet machine."""
    data = measure(mlp, {"identity": 1.0, "openvino": 3.0}, {"identity": range(15)}, foreign_percent=30.0)
    conclusions = conclude(data)
    doubt, step = conclusions.lines

    assert "38 % of the samples were contended: of the cores, other processes took 30 % of their time" in (
        describe_contention(data)
    )
    assert doubt.startswith("Not conclusive: the fastest in 1 of 1 groups (mlp batch 1: openvino or identity, ")
    assert doubt.endswith(" times as fast in too few uncontended rounds).")
    assert "Next: when the machine is quiet, `ngbkit runs --resume RUN --retry inconclusive`." == step
    assert [] == list_details(conclusions)


def test_a_verdict_of_many_groups_has_three_lines(mlp: Workload) -> None:
    """The groups of a large run are counted, and the details list the first of them."""
    sizes = list(range(1, 31))
    data = measure(mlp, {"identity": 1.0, "onnxruntime": 2.9, "openvino": 3.0}, batch_sizes=sizes, unequal=True)
    conclusions = conclude(data)

    assert 3 == len(conclusions.lines)
    assert max(map(len, conclusions.lines)) < 220
    assert re.match(r"Fastest: openvino in \d+ of 30 groups, ", conclusions.lines[0])
    assert 12 == sum(line.startswith(("mlp batch", "networks")) for line in list_details(conclusions))
    assert re.fullmatch(r"1\d more groups", list_details(conclusions)[-1])
    assert len(list_details(conclusions)) == conclusions.to_text().partition("\n\n")[2].count("\n") + 1


@pytest.mark.parametrize(("samples", "mentioned"), [(range(2), False), (range(8), True)])
def test_a_few_contended_samples_are_not_worth_a_word(mlp: Workload, samples: Sequence[int], mentioned: bool) -> None:
    """Some are marked on any machine."""
    data = measure(mlp, {"identity": 1.0, "openvino": 3.0}, {"openvino": samples}, steal_percent=4.0)

    assert mentioned == bool(describe_contention(data))


def test_a_quota_is_named_with_its_remedy(mlp: Workload) -> None:
    """A container that is paused is not disturbed by other work, and no quiet hour helps."""
    data = measure(mlp, {"identity": 1.0, "openvino": 3.0}, {"openvino": range(ROUNDS)}, throttled_percent=25.0)

    assert describe_contention(data).endswith(": of the cores, the container's quota withheld 25 % of their time")
    assert conclude(data).next.startswith("Next: raise the container's quota, which paused it (`docker run --cpus`")


def test_a_host_that_moves_the_cores_is_named(mlp: Workload) -> None:
    """Samples of another state than the usual one have it as their cause, and the details have all states."""
    data = measure(mlp, {"identity": 1.0, "openvino": 3.0}, {"openvino": range(8)}, unusual_percent=40.0)
    assert describe_contention(data).endswith(": of the cores, the host moved or shared 40 % of their time")
    assert not any("runs its cores" in line for line in list_details(conclude(data)))

    states = [
        {"low_s": 0.9 * s, "high_s": s / 0.9, "mean_s": s, "share": share} for s, share in ((2e-7, 0.9), (5.6e-7, 0.09))
    ]
    data.attrs["environments"] = json.dumps({"cpu": {"states": {"trip_s": states, "work_s": []}}})
    (line,) = (line for line in list_details(conclude(data)) if "runs its cores" in line)
    assert "a cache line from one core to another and back takes 200 ns in 90 %, 560 ns in 9 % of the readings" in line

    data.attrs["environments"] = json.dumps({"cpu": {"states": {"trip_s": [], "work_s": []}}})
    assert not any("too few readings" in line for line in list_details(conclude(data)))
    data["core_trip"] = data["throughput"] * 0 + 2e-7
    assert any("The probes of cpu have too few readings yet" in line for line in list_details(conclude(data)))


BUSY = {"other_busy_percent": 99.6, "busiest": ["stress"]}


@pytest.mark.parametrize(
    ("devices", "text"),
    [
        ({"cpu": BUSY}, "other work used 100 % of all cores (stress) when it began"),
        ({"cpu": {"other_busy_percent": 9.4}}, ""),
        ({"cpu": {"other_busy_percent": None}}, ""),
        ({"cpu": BUSY, "orin": {}}, "other work used 100 % of all cores (stress) of cpu when it began"),
    ],
)
def test_what_ran_when_a_run_began_stays_with_it(
    mlp: Workload, devices: Mapping[str, Mapping[str, object]], text: str, tmp_path: Path
) -> None:
    """A table and a figure of a saved dataset report the other work of its run."""
    data = measure(mlp, {"identity": 1.0, "openvino": 3.0})
    data.attrs["environments"] = json.dumps({label: {"conditions": state} for label, state in devices.items()})
    data = storage.load(storage.save(data, tmp_path / "run.nc"))
    subtitles = [figures.overview(data).to_dict()["title"]["subtitle"], data.ngb.plot.speedup().title.subtitle]

    assert text == describe_contention(data)
    assert [bool(text)] * 2 == ["other work used" in to_texts(tables.compact(data, name)).to_text() for name in FIGURES]
    assert [bool(text)] * 2 == [text in lines for lines in subtitles]


def test_a_single_compiler_has_no_rival(mlp: Workload) -> None:
    """A single compiler has no conclusion."""
    assert "" == conclude(measure(mlp, {"identity": 1.0})).to_text()


def test_equal_leads_are_said_once(mlp: Workload) -> None:
    """The span of leads has one end where both read the same."""
    data = measure(mlp, {"identity": 1.0, "openvino": 3.0}, devices=["cpu", "orin"])
    latency = data["latency"].isel(device=[0, 0]).assign_coords(device=data["device"])
    (line,) = conclude(data.assign(latency=latency)).lines

    assert re.fullmatch(r"Fastest: openvino in both groups, [\d.]+ ± [\d.]+ times the next\.", line)


def test_several_devices_are_named(mlp: Workload) -> None:
    """Each group has a winner of its own, whose place the details name."""
    conclusions = conclude(measure(mlp, {"identity": 1.0, "openvino": 3.0}, devices=["cpu", "orin"]))
    (line,) = conclusions.lines

    assert line.startswith("Fastest: openvino in both groups, ")
    assert ["mlp on cpu batch 1: openvino", "mlp on orin batch 1: openvino"] == [
        line.partition(" is the fastest")[0] for line in list_details(conclusions)
    ]
