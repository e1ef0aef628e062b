"""Peaks: what a device can do at most, measured once."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from requirements import Requirement, require

from ngbkit.device import peaks
from ngbkit.device.peaks import Peaks
from ngbkit.errors import DeviceError
from ngbkit.hardware import environment


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """Has given peaks measured one after the other, on a quiet machine or not; the list says with how many threads."""

    def give(*found: tuple[float, float], quiet: bool = True) -> list[int]:
        asked: list[int] = []
        waiting = list(found)

        def measure(threads: int) -> Peaks:
            asked.append(threads)
            flops, bytes_per_s = waiting.pop(0)
            return Peaks(flops=flops, bytes_per_s=bytes_per_s, threads=threads)

        monkeypatch.setattr(peaks, "measure", measure)
        monkeypatch.setattr(peaks, "_quiet", lambda: quiet)
        return asked

    return give


def test_the_best_stretch_counts() -> None:
    """Two threads' calls that ran side by side, and not the slower ones before; a call on the edge counts in part."""
    slow = [(float(start), start + 1.0) for start in range(4)]
    fast = [(4 + step / 4, 4 + (step + 1) / 4) for step in range(8)]

    assert pytest.approx(8.0) == peaks.busiest([*slow, *fast, *fast], 1.0)
    assert pytest.approx(1.0) == peaks.busiest(slow, 2.5)
    assert pytest.approx((3 * 1 + 2 * 4) / 5) == peaks.busiest([*slow[1:], *fast], 5.0)


def test_threads_that_never_ran_together_do_not_add_up() -> None:
    """Each had the core for itself while the other waited."""
    first = [(step / 10, (step + 1) / 10) for step in range(10)]
    second = [(1 + step / 10, 1 + (step + 1) / 10) for step in range(10)]

    assert pytest.approx(10.0) == peaks.busiest([*first, *second], 0.5)


def test_a_stretch_longer_than_all_calls_is_all_of_them() -> None:
    """Nothing is divided by time in which nobody measured."""
    assert pytest.approx(2.0) == peaks.busiest([(0.0, 0.5), (0.5, 1.0)], 60.0)


def test_products_and_passes_give_rates() -> None:
    """Of one thread and of two, whatever they are."""
    one, two = (peaks.measure_numpy(threads, 0.06) for threads in (1, 2))

    assert {"flops", "bytes_per_s"} == set(one) == set(two)
    assert all(rate > 0 for rate in (*one.values(), *two.values()))


@pytest.mark.parametrize("name", peaks.RUNTIMES)
def test_each_runtime_computes_convolutions(name: str) -> None:
    """In a process of its own, so that none is loaded beside another."""
    runtime = Requirement(name=name, install=f"pip install 'ngbkit[{name}]'")
    require(runtime, present=importlib.util.find_spec(name) is not None)

    assert 0 < peaks._in_child(name, 1, 0.03)["flops"]


def test_peaks_are_measured_in_processes_of_their_own() -> None:
    """The whole way, with the number of threads that was asked for."""
    found = peaks.measure(1, 0.1)

    assert (1, True, True) == (found.threads, found.flops > 0, found.bytes_per_s > 0)


def test_the_higher_rate_is_the_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    """A BLAS may fall short of what a runtime's convolutions reach, and a runtime may fail."""
    rates = {"numpy": {"flops": 57e9, "bytes_per_s": 2e10}, "here": {"flops": 122e9}}

    def child(what: str, threads: int, seconds: float) -> dict[str, float]:
        if what == "broken":
            raise DeviceError("it does not run here")
        return rates[what]

    monkeypatch.setattr(peaks, "_in_child", child)
    monkeypatch.setattr(peaks, "_installed", lambda: "here")
    higher = peaks.measure(2)
    monkeypatch.setattr(peaks, "_installed", lambda: "broken")
    lower = peaks.measure(2)

    assert (122e9, 2e10) == (higher.flops, higher.bytes_per_s)
    assert (57e9, 2e10) == (lower.flops, lower.bytes_per_s)


def test_a_child_that_fails_says_what_to_run() -> None:
    """The end of what it wrote, and the command."""
    with pytest.raises(
        DeviceError, match=r"measuring the peak with nothing failed: .*KeyError.*; try `.*-m ngbkit.device.peaks"
    ):
        peaks._in_child("nothing", 1, 0.1)


def test_peaks_are_kept(tmp_path: Path, measured: Callable[..., list[int]]) -> None:
    """Below the state folder, by number of threads."""
    asked = measured((1e9, 2e9), (3e9, 4e9))
    first = peaks.load_or_measure(tmp_path / "device", 1)
    again = peaks.load_or_measure(tmp_path / "device", 1)
    other = peaks.load_or_measure(tmp_path / "device", 2)

    assert [1, 2] == asked
    assert Peaks(flops=1e9, bytes_per_s=2e9, threads=1) == first == again
    assert 3e9 == other.flops
    assert ["peaks.json"] == [file.name for file in (tmp_path / "device").iterdir()]


def test_another_chip_is_measured_again(
    tmp_path: Path, measured: Callable[..., list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A state folder may be shared, or its disk moved."""
    asked = measured((1e9, 2e9), (3e9, 4e9))
    peaks.load_or_measure(tmp_path, 1)
    monkeypatch.setattr(environment, "chip", lambda: "another")

    assert 3e9 == peaks.load_or_measure(tmp_path, 1).flops
    assert [1, 1] == asked


def test_peaks_beside_other_work_are_measured_again(tmp_path: Path, measured: Callable[..., list[int]]) -> None:
    """The higher ones count, until the machine was quiet."""
    measured((5e9, 2e9), (4e9, 3e9), quiet=False)
    peaks.load_or_measure(tmp_path, 1)
    busy = peaks.load_or_measure(tmp_path, 1)
    asked = measured((6e9, 1e9))
    quiet = [peaks.load_or_measure(tmp_path, 1) for _ in range(2)]

    assert (5e9, 3e9) == (busy.flops, busy.bytes_per_s)
    assert [(6e9, 3e9)] * 2 == [(one.flops, one.bytes_per_s) for one in quiet]
    assert [1] == asked


@pytest.mark.parametrize("text", ["", "[1]", "{", json.dumps({"other": 1})])
def test_a_file_that_is_not_ours_is_replaced(tmp_path: Path, measured: Callable[..., list[int]], text: str) -> None:
    """It costs a measurement."""
    (tmp_path / "peaks.json").write_text(text)
    measured((1e9, 2e9))

    assert 1e9 == peaks.load_or_measure(tmp_path, 1).flops
    assert 1e9 == peaks.load_or_measure(tmp_path, 1).flops
