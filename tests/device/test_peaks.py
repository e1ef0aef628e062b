"""Peaks: the highest rates of a device, measured once."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest
from requirements import Requirement, require

from ngbkit.device import peaks
from ngbkit.device.peaks import Peaks
from ngbkit.errors import DeviceError
from ngbkit.hardware import environment


@pytest.fixture
def set_rates(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """Set the results of the next measurements, on a quiet machine or not; the list has their numbers of threads."""

    def set_results(*rates: tuple[float, float], quiet: bool = True) -> list[int]:
        calls: list[int] = []
        results = list(rates)

        def measure(threads: int) -> Peaks:
            calls.append(threads)
            flops, bytes_per_s = results.pop(0)
            return Peaks(flops=flops, bytes_per_s=bytes_per_s, threads=threads)

        monkeypatch.setattr(peaks, "measure", measure)
        monkeypatch.setattr(peaks, "_is_quiet", lambda: quiet)
        return calls

    return set_results


def test_the_best_window_counts() -> None:
    """The rate is that of the best window, and a call on its edge counts in part."""
    slow = [(float(start), start + 1.0) for start in range(4)]
    fast = [(4 + step / 4, 4 + (step + 1) / 4) for step in range(8)]

    assert pytest.approx(8.0) == peaks.compute_best_rate([*slow, *fast, *fast], 1.0)
    assert pytest.approx(1.0) == peaks.compute_best_rate(slow, 2.5)
    assert pytest.approx((3 * 1 + 2 * 4) / 5) == peaks.compute_best_rate([*slow[1:], *fast], 5.0)


def test_threads_that_never_ran_together_do_not_add_up() -> None:
    """Each used the core alone while the other waited."""
    first = [(step / 10, (step + 1) / 10) for step in range(10)]
    second = [(1 + step / 10, 1 + (step + 1) / 10) for step in range(10)]

    assert pytest.approx(10.0) == peaks.compute_best_rate([*first, *second], 0.5)


def test_a_window_longer_than_all_calls_covers_them() -> None:
    """The rate excludes time without measurement."""
    assert pytest.approx(2.0) == peaks.compute_best_rate([(0.0, 0.5), (0.5, 1.0)], 60.0)


def test_products_and_passes_give_rates() -> None:
    """One thread and two threads each have positive peak rates."""
    single, double = (peaks.measure_numpy(threads, 0.06) for threads in (1, 2))

    assert {"flops", "bytes_per_s"} == set(single) == set(double)
    assert all(rate > 0 for rate in (*single.values(), *double.values()))


@pytest.mark.parametrize("name", peaks.RUNTIMES)
def test_each_runtime_computes_convolutions(name: str) -> None:
    """Each runtime measures convolutions in a process of its own."""
    runtime = Requirement(name=name, install=f"pip install 'ngbkit[{name}]'")
    require(runtime, present=importlib.util.find_spec(name) is not None)

    assert 0 < peaks._measure_in_child(name, 1, 0.03)["flops"]


def test_peaks_are_measured_in_processes_of_their_own() -> None:
    """Peaks are measured in child processes with the requested number of threads."""
    set_rates = peaks.measure(1, 0.1)

    assert (1, True, True) == (set_rates.threads, set_rates.flops > 0, set_rates.bytes_per_s > 0)


def test_the_higher_rate_is_the_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    """A BLAS may fall short of what a runtime's convolutions reach, and a runtime may fail."""
    rates = {"numpy": {"flops": 57e9, "bytes_per_s": 2e10}, "here": {"flops": 122e9}}

    def child(library: str, threads: int, seconds: float) -> dict[str, float]:
        if library == "broken":
            raise DeviceError("it does not run here")
        return rates[library]

    monkeypatch.setattr(peaks, "_measure_in_child", child)
    monkeypatch.setattr(peaks, "_find_runtime", lambda: "here")
    higher = peaks.measure(2)
    monkeypatch.setattr(peaks, "_find_runtime", lambda: "broken")
    lower = peaks.measure(2)

    assert (122e9, 2e10) == (higher.flops, higher.bytes_per_s)
    assert (57e9, 2e10) == (lower.flops, lower.bytes_per_s)


def test_the_error_of_a_failed_child_has_its_command() -> None:
    """The error of a failed child has its command and the end of its output."""
    with pytest.raises(
        DeviceError, match=r"measuring the peak with nothing failed: .*KeyError.*; try `.*-m ngbkit.device.peaks"
    ):
        peaks._measure_in_child("nothing", 1, 0.1)


def test_peaks_are_stored(tmp_path: Path, set_rates: Callable[..., list[int]]) -> None:
    """Peaks are stored below the state folder by number of threads."""
    calls = set_rates((1e9, 2e9), (3e9, 4e9))
    first = peaks.load_or_measure(tmp_path / "device", 1)
    again = peaks.load_or_measure(tmp_path / "device", 1)
    other = peaks.load_or_measure(tmp_path / "device", 2)

    assert [1, 2] == calls
    assert Peaks(flops=1e9, bytes_per_s=2e9, threads=1) == first == again
    assert 3e9 == other.flops
    assert ["peaks.json"] == [file.name for file in (tmp_path / "device").iterdir()]


def test_another_chip_is_measured_again(
    tmp_path: Path, set_rates: Callable[..., list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A state folder may be shared, or its disk moved."""
    calls = set_rates((1e9, 2e9), (3e9, 4e9))
    peaks.load_or_measure(tmp_path, 1)
    monkeypatch.setattr(environment, "read_chip", lambda: "another")

    assert 3e9 == peaks.load_or_measure(tmp_path, 1).flops
    assert [1, 1] == calls


def test_peaks_beside_other_work_are_measured_again(
    tmp_path: Path, set_rates: Callable[..., list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Peaks beside other work are measured again an hour later, and the higher ones count."""
    monkeypatch.setattr(peaks.time, "time", clock := Mock(return_value=1e9))
    set_rates((5e9, 2e9), (4e9, 3e9), quiet=False)
    early = [peaks.load_or_measure(tmp_path, 1).bytes_per_s for _ in range(2)]
    clock.return_value += 3601
    busy = peaks.load_or_measure(tmp_path, 1)
    clock.return_value += 3601
    calls = set_rates((6e9, 1e9))
    quiet = [peaks.load_or_measure(tmp_path, 1) for _ in range(2)]

    assert [2e9, 2e9] == early
    assert (5e9, 3e9) == (busy.flops, busy.bytes_per_s)
    assert [(6e9, 3e9)] * 2 == [(result.flops, result.bytes_per_s) for result in quiet]
    assert [1] == calls


@pytest.mark.parametrize("text", ["", "[1]", "{", json.dumps({"other": 1})])
def test_an_invalid_file_is_replaced(tmp_path: Path, set_rates: Callable[..., list[int]], text: str) -> None:
    """An invalid file of peaks is replaced by a new measurement."""
    (tmp_path / "peaks.json").write_text(text)
    set_rates((1e9, 2e9))

    assert 1e9 == peaks.load_or_measure(tmp_path, 1).flops
    assert 1e9 == peaks.load_or_measure(tmp_path, 1).flops
