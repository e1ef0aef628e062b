"""The energy of CPUs by powercap, on recorded trees: which counters add up, and what to do where none can be read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from recorded import record

from ngbkit.hardware import telemetry
from ngbkit.hardware.telemetry import Meter, nvml
from ngbkit.hardware.telemetry.rapl import CpuChip
from ngbkit.hardware.telemetry.use import Totals

FOLDER = "sys/class/powercap"
RANGE = 262_143_328_850


def build_zones(zones: Mapping[str, tuple[str, object]], limit: object = RANGE) -> dict[str, object]:
    """The files of zones, by their numbers, from their names and counts."""
    files: dict[str, object] = {f"{FOLDER}/intel-rapl/enabled": 1}
    for number, (name, count) in zones.items():
        zone = f"{FOLDER}/intel-rapl{number}"
        files |= {f"{zone}/name": name, f"{zone}/energy_uj": count, f"{zone}/max_energy_range_uj": limit}
    return files


# Two packages of a server with their memory, a laptop's parts of its package and platform, and a second bus.
SERVER = {
    ":0": ("package-0", 1_000_000),
    ":0:0": ("dram", 500_000),
    ":1": ("package-1", 2_000_000),
    ":1:0": ("dram", 700_000),
}
LAPTOP = {":0": ("package-0", 5_000_000), ":0:0": ("core", 3_000_000), ":0:1": ("uncore", 1), ":1": ("psys", 9_000_000)}


def open_chip(root: Path) -> CpuChip:
    chip = telemetry.open("cpu", root)
    assert isinstance(chip, CpuChip)
    return chip


def set_counts(root: Path, counts: Mapping[str, object]) -> None:
    for number, count in counts.items():
        (root / FOLDER / f"intel-rapl{number}" / "energy_uj").write_text(f"{count}\n")


def read_joules(chip: CpuChip) -> float | None:
    return chip.read().energy_j


def test_packages_and_their_memory_add_up(tmp_path: Path) -> None:
    """The energy is the sum of packages and memory since the first reading."""
    root = record(tmp_path, build_zones(SERVER))
    chip = open_chip(root)

    assert 0.0 == read_joules(chip)
    set_counts(root, {":0": 3_000_000, ":0:0": 600_000, ":1": 2_500_000, ":1:0": 700_000})
    assert 2.6 == pytest.approx(read_joules(chip))
    assert ["package-0", "package-0 dram", "package-1", "package-1 dram"] == chip.describe()["domains"]


def test_parts_and_the_platform_do_not_count_twice(tmp_path: Path) -> None:
    """Cores and graphics are in their package, which is in the platform; another bus has the same package."""
    files = build_zones(LAPTOP) | {f"{FOLDER}/intel-rapl-mmio:0/name": "package-0"}
    chip = open_chip(record(tmp_path, files | {f"{FOLDER}/intel-rapl-mmio:0/energy_uj": 1}))

    assert ["package-0"] == chip.describe()["domains"]


def test_a_counter_that_begins_anew_counts_on(tmp_path: Path) -> None:
    """The energy keeps growing when a counter restarts at the end of its range."""
    root = record(tmp_path, build_zones({":0": ("package-0", RANGE - 1_000_000)}))
    chip = open_chip(root)
    energies = [read_joules(chip)]
    for count in (2_000_000, RANGE - 1_000_000, 1_000_000):
        set_counts(root, {":0": count})
        energies.append(read_joules(chip))

    assert [0.0, 3.0, RANGE / 1e6, RANGE / 1e6 + 2.0] == pytest.approx(energies)


def test_a_reset_without_a_range_is_no_energy(tmp_path: Path) -> None:
    """The total falls, which the use of a turn leaves out."""
    root = record(tmp_path, build_zones({":0": ("package-0", 5_000_000)}, limit="unknown"))
    chip = open_chip(root)
    meter = Meter(chip)
    with meter.record_turn():
        set_counts(root, {":0": 1})

    assert None is meter.summarize().energy_j


def test_a_counter_that_stops_answering_is_no_zero(tmp_path: Path) -> None:
    """The energy is None, not that of the other packages, if a counter stops answering."""
    root = record(tmp_path, build_zones(SERVER))
    chip = open_chip(root)
    chip.read()
    (root / FOLDER / "intel-rapl:1" / "energy_uj").unlink()

    assert None is read_joules(chip)


def test_the_energy_of_turns_is_the_power_times_their_length(tmp_path: Path) -> None:
    """The energy of turns is the power times their length."""
    root = record(tmp_path, build_zones({":0": ("package-0", 0)}))
    now = [0.0]
    chip = CpuChip(root, clock=lambda: now[0])
    totals = Totals(lag_s=chip.lag_s)
    for _ in range(3):
        readings = []
        for step in (0.0, 0.002, 0.198):
            now[0] += step
            set_counts(root, {":0": round(40e6 * now[0])})
            readings.append(chip.read())
        totals.add(readings)
        now[0] += 5.0

    assert 40 * 0.6 == pytest.approx(totals.summarize().energy_j, rel=1e-6)
    assert 0.6 == pytest.approx(totals.summarize().turns_s)


def test_root_alone_may_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The problem names the file and the command."""
    root = record(tmp_path, build_zones(SERVER))
    read_text = Path.read_text

    def refuse(path: Path, *arguments: Any, **keywords: Any) -> str:
        if path.name == "energy_uj":
            raise PermissionError(13, os.strerror(13), str(path))
        return read_text(path, *arguments, **keywords)

    monkeypatch.setattr(Path, "read_text", refuse)

    assert None is telemetry.open("cpu", root)
    problem = telemetry.find_problem("cpu", root)
    assert "readable by root alone" in problem
    assert f"sudo chmod a+r {root}/sys/class/powercap/intel-rapl:*/energy_uj" in problem


def test_a_counter_without_a_number_is_a_problem(tmp_path: Path) -> None:
    """A counter without a number is reported as a problem and gives no telemetry."""
    root = record(tmp_path, build_zones({":0": ("package-0", "none")}))

    assert None is telemetry.open("cpu", root)
    assert "does not answer" in telemetry.find_problem("cpu", root)


@pytest.mark.parametrize("files", [{}, {f"{FOLDER}/intel-rapl/enabled": 1}, build_zones({":0": ("psys", 1)})])
def test_a_machine_without_counters_says_so(tmp_path: Path, files: dict[str, object]) -> None:
    """A machine without counters, such as a virtual one, has a problem that says so."""
    root = record(tmp_path, files)

    assert None is telemetry.open("cpu", root)
    assert "no energy counter of the CPU" in telemetry.find_problem("cpu", root)


def test_a_gpu_has_its_own_energy_beside_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The counters of the CPU are none of a GPU without telemetry."""
    monkeypatch.setattr(nvml, "find_gpu", lambda accelerator: "no GPU")
    root = record(tmp_path, build_zones(SERVER))

    assert None is telemetry.open("cuda:0", root)
    assert "no GPU" == telemetry.find_problem("cuda:0", root)


def test_a_turn_of_a_cpu_is_read_three_times(tmp_path: Path) -> None:
    """A turn of a CPU is read at its start, after the lag and at its end."""
    chip = open_chip(record(tmp_path, build_zones(SERVER)))
    times: list[float] = []
    read = chip.read
    chip.read = lambda: (times.append(0.0), read())[1]  # type: ignore[method-assign]
    meter = Meter(chip)
    with meter.record_turn():
        while len(times) < 2:
            pass

    assert 3 == len(times) == meter.summarize().samples
