"""The limits of processes: the one that was met is named with its number, whatever reports it."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest
from recorded import record

from ngbkit import limits
from ngbkit.errors import DeviceError
from ngbkit.files import explain

GROUP = {"proc/self/cgroup": "4:memory,pids:/job", "sys/fs/cgroup/memory/job/memory.limit_in_bytes": 300_000_000}
OPENVINO = 'Failed to create plugin "intel_cpu" for device CPU\nResource temporarily unavailable'


@pytest.mark.parametrize(
    ("report", "sentence"),
    [
        (MemoryError(), "out of memory: its container has 300 MB of memory (memory.max). Raise the limit, end"),
        ("terminate called after throwing an instance of 'std::bad_alloc'", "its container has 300 MB of memory"),
        ("numpy.so: failed to map segment from shared object", "its container has 300 MB of memory"),
        (OPENVINO, "no further process or thread can start: its container may have 5 (pids.max). Raise the limit or"),
        (RuntimeError("can't start new thread"), "its container may have 5 (pids.max)"),
        ("the child process was ended by SIGXFSZ", "a file may have at most 1 MB (ulimit -f). Raise the limit"),
        (
            "the child process was ended by SIGXCPU",
            "the processor time of this process, 9 s (ulimit -t), is used up. Raise",
        ),
    ],
)
def test_the_limit_that_was_met_is_named(
    report: BaseException | str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of Python, the log of a program and the signal of the kernel lead to the number and the remedy."""
    shell = {resource.RLIMIT_FSIZE: 1_000_000, resource.RLIMIT_CPU: 9}
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (shell.get(kind, -1), -1))
    record(tmp_path, {**GROUP, "sys/fs/cgroup/pids/job/pids.max": 5, "sys/fs/cgroup/memory,pids/job/pids.max": "max"})

    assert sentence in limits.describe(report, tmp_path)


def test_the_tightest_limit_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shell's limits count where they are below those of the container, and root's number of processes has none."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (200_000_000, -1))
    record(tmp_path, GROUP)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    assert "each process has 200 MB of memory (ulimit -v)" == limits.describe_memory(tmp_path)
    with pytest.raises(DeviceError, match=r"each process has 200 MB \(ulimit -v\); expected at least 1 GB\. Raise it"):
        limits.check(tmp_path)
    assert "this user may have 200000000 (ulimit -u), and each" in limits.describe("Cannot fork", tmp_path)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (100 if kind == resource.RLIMIT_NPROC else -1, -1))
    record(tmp_path, {"proc/7/task/7": "", "proc/7/task/8": ""})
    limits.check(tmp_path)
    record(tmp_path, {f"proc/8/task/{number}": "" for number in range(40)})
    with pytest.raises(
        DeviceError, match=r"^58 further processes or threads can start, of 64: this user may have 100 "
    ):
        limits.check(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "ulimit -u" not in limits.describe("Cannot fork", tmp_path)


@pytest.mark.parametrize("report", ["CUDA out of memory", "TensorRT: (out of memory)", ValueError("a fork"), ""])
def test_another_fault_is_no_limit(report: BaseException | str) -> None:
    """The memory of an accelerator is no limit of a process."""
    assert "" == limits.describe(report)


def test_an_error_without_a_file_is_explained_by_its_limit() -> None:
    """A command ends with the sentence, and not with a traceback."""
    errors = (MemoryError(), RuntimeError("can't start new thread"), ImportError("x.so: failed to map segment"))

    assert [limits.describe(error) for error in errors] == [str(explain(error)) for error in errors]
