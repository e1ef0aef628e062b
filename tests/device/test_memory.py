"""Memory as a condition of a column: its page faults, its contract, and what a reader is told."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import xarray as xr
from plans import carry_out

from ngbkit.api import Sweep
from ngbkit.device import faults
from ngbkit.device.isolation import settings
from ngbkit.errors import UnknownNameError, UnsupportedError, UsageError
from ngbkit.metrics.contracts import describe_differences
from ngbkit.metrics.disturbances import describe_faults
from ngbkit.metrics.rankings.contests import list_contests
from ngbkit.metrics.trials import why
from ngbkit.sweep.column import Column
from ngbkit.sweep.grid import Grid
from ngbkit.workloads import cell
from ngbkit.workloads.base import Workload

SYSTEM = 'identity{"memory":"system"}'
HUGE = 'identity{"memory":"huge"}'
MISSING = 'identity{"memory":"jemalloc"}'
# Each call has tensors of 42 MB, more than any block that glibc itself learns to keep.
LARGE = """
import torch

class Large(torch.nn.Module):
    def forward(self, x):
        return (x[:, None, :].expand(-1, 40960, -1) + 1).mean(1)

model = Large()
input_shape = (256,)
"""

# A thread that is not the first takes, writes and returns a block three times: the page faults of the last time.
BLOCKS = """
import ctypes, resource, threading

libc, size = ctypes.CDLL(None), 80 << 20
libc.malloc.restype = ctypes.c_void_p
libc.memset.argtypes, libc.free.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t], [ctypes.c_void_p]

def work():
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        block = libc.malloc(size)
        libc.memset(block, 1, size)
        libc.free(block)
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)

faults = []
thread = threading.Thread(target=work)
thread.start()
thread.join()
print(faults[-1])
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> xr.Dataset:
    """A network with large tensors, measured with each memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NGBKIT_STATE_DIR", str(tmp_path_factory.mktemp("state")))
        sweep = Sweep(cell.from_source(LARGE), ["identity", SYSTEM, HUGE], repeats=30)
        return sweep.run().squeeze(["workload", "device", "batch_size"])


def test_kept_memory_has_no_faults(large: xr.Dataset) -> None:
    """Each page of a tensor that goes back to the kernel costs a fault in the next call; kept, it costs none."""
    count = large["minor_faults"]

    assert 10_000 <= count.sel(compiler=SYSTEM)
    assert count.sel(compiler="identity") < 100
    assert count.sel(compiler=HUGE) < 100
    assert {"kept", "system", "huge"} == {
        json.loads(str(large["contract"].sel(compiler=label).item()))["memory"] for label in ("identity", SYSTEM, HUGE)
    }


@pytest.mark.parametrize(("left_out", "is_kept"), [([], True), (["MALLOC_ARENA_MAX"], False)])
def test_a_thread_keeps_its_largest_blocks(left_out: Sequence[str], is_kept: bool) -> None:
    """A block above 64 MB stays with the process whichever thread takes it, which it does not in several arenas."""
    child = settings.build_child_settings(1, {})
    variables = {name: value for name, value in {**os.environ, **child}.items() if name not in left_out}
    done = subprocess.run([sys.executable, "-c", BLOCKS], env=variables, capture_output=True, text=True, check=True)

    assert is_kept == (int(done.stdout) < 100)


def test_a_reader_hears_what_faults_cost(large: xr.Dataset) -> None:
    """The verdict and `why()` have the share of the time that faults took; where there are none nothing is said."""
    sentence = describe_faults(large.sel(compiler=["identity", SYSTEM]))[-1]
    shares = why(large).set_index("compiler")["fault_share"]

    assert re.match(
        rf"[\d,.]+ page faults a call cost {re.escape(SYSTEM)} about \d+ to \d+ % of its CPU time", sentence
    )
    assert sentence.endswith("its memory is system, and kept returns no page.")
    assert 0.05 < shares[SYSTEM] <= 1
    assert shares["identity"] < shares[SYSTEM] / 5


def test_a_missing_library_is_named(mlp: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column whose library is not installed is unsupported, and says what to install; the others are measured."""
    monkeypatch.setattr(settings, "_find_library", lambda name: "")
    records, _ = carry_out(Sweep(mlp, ["identity", MISSING], repeats=5, threads=1))
    failure = records[MISSING, 1]

    assert "unsupported" == failure.status
    assert "install libjemalloc2" in failure.error
    assert "ok" == records["identity", 1].status


def test_a_column_is_compared_by_name_alone(large: xr.Dataset) -> None:
    """A memory that the label names is compared; one of another run that differs is unlike."""
    pair = large.sel(compiler=["identity", SYSTEM])

    assert pair.ngb.speedup(ci=None).notnull().all()
    assert ["memory system instead of kept"] == describe_differences({"memory": "system"}, {"memory": "kept"})


def test_a_copy_that_pays_for_pages_is_no_rival(large: xr.Dataset) -> None:
    """Nobody would choose the memory of a script: at best it is as fast. Huge pages are a choice, and compete."""
    contests = list_contests(large.expand_dims(["workload", "device", "batch_size"]))

    assert {"identity", HUGE} == {column.compiler for contest in contests for column in contest.columns}


def test_a_label_has_its_memory() -> None:
    """The memory is a field of the column, no option of its compiler; another word is refused with the valid ones."""
    column = Column.parse(SYSTEM)

    assert ("system", {}, SYSTEM) == (column.memory, column.settings, column.label)
    assert not column.is_baseline
    assert {"memory": "memory system instead of default"} == column.differs_from(Column.read("identity"))
    with pytest.raises(UsageError, match='expected "kept", "system", "huge"'):
        Column.parse('identity{"memory":"big"}')
    with pytest.raises(UnknownNameError, match="memory"):
        Column.parse('identity{"memry":"kept"}')


def test_earlier_measurements_have_the_memory_of_the_system(large: xr.Dataset) -> None:
    """A sweep from before there was a choice is found by its id; its contracts say nothing of memory: it was system."""
    stored = Grid("resnet18").to_json()
    contract = json.loads(str(large["contract"].sel(compiler="identity").item()))
    del contract["memory"]
    earlier = large.assign(contract=large["contract"].where(large["compiler"] != "identity", json.dumps(contract)))

    assert "memory" not in stored
    assert Grid.from_json(stored).id == Grid("resnet18").id != Grid("resnet18", memory="system").id
    assert "system" == why(earlier).set_index("compiler")["memory"]["identity"]


def test_a_library_comes_before_those_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """The allocator is preloaded, and so is what the user preloads; tunables are joined as well."""
    monkeypatch.setattr(settings, "_find_library", lambda name: f"lib{name}.so.2")
    preloaded = settings.build_child_settings(1, {"LD_PRELOAD": "own.so"}, "jemalloc")
    tuned = settings.build_child_settings(1, {"GLIBC_TUNABLES": "glibc.malloc.arena_max=1"}, "huge")

    assert "libjemalloc.so.2 own.so" == preloaded["LD_PRELOAD"]
    assert "glibc.malloc.arena_max=1:glibc.malloc.hugetlb=1" == tuned["GLIBC_TUNABLES"]
    assert settings.KEEPING.keys().isdisjoint(settings.build_child_settings(1, {}, "system"))


def test_the_contract_has_the_allocator_that_is_there(mlp: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library that a user preloads replaces glibc, whose settings keep nothing then; without it a trial fails."""
    monkeypatch.setattr(settings, "_read_maps", lambda: "7f00 r-xp /usr/lib/libjemalloc.so.2")
    monkeypatch.setenv("LD_PRELOAD", "libjemalloc.so.2")

    assert "jemalloc" == settings.observe_memory("kept") == settings.observe_memory("jemalloc")
    monkeypatch.setattr(settings, "_read_maps", lambda: "")
    assert "kept" == settings.observe_memory("kept")
    with pytest.raises(UnsupportedError, match="the loader did not take it"):
        settings.observe_memory("jemalloc")
    monkeypatch.delenv("LD_PRELOAD")
    monkeypatch.setattr(settings, "_find_library", lambda name: "libjemalloc-that-is-not-there.so")
    records, _ = carry_out(Sweep(mlp, ["identity", MISSING], repeats=5, threads=1))
    assert "unsupported" == records[MISSING, 1].status


def test_the_cost_of_a_fault_is_measured_once_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A day later it is measured again; the peaks in the same file stay."""
    peaks = tmp_path / "peaks.json"
    peaks.write_text('{"chip": {"flops": 1}}')
    first = faults.load_or_measure(tmp_path)
    monkeypatch.setattr(faults, "measure", lambda: 7.0)

    assert first == faults.load_or_measure(tmp_path) > 0
    entries = json.loads(peaks.read_text())
    entries["page faults"]["measured_at"] -= 86_401
    peaks.write_text(json.dumps(entries))
    assert 7.0 == faults.load_or_measure(tmp_path)
    assert {"flops": 1} == json.loads(peaks.read_text())["chip"]
