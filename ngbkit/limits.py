"""Limits that a shell, a container or a batch system sets to processes, and the sentence about one that was met."""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from ngbkit.errors import DeviceError
from ngbkit.user_text import format_size

ROOT = Path("/")
# A client reserves about so much on two cores, most of it for threads: below, OpenBLAS ends or halts its process.
_LEAST_MEMORY_BYTES = 1_000_000_000
# Of client, controller and engine: OpenBLAS interrupts its process where it has too few, and a controller that lacks
# one of its own never starts.
_LEAST_THREADS = 64
_FEW_THREADS = 10_000  # more are not counted
_LAST_S = 2  # of processor time, to save what was measured
_PAGES_BYTES = 1 << 16  # the most that SQLite writes at once beyond the end of a file


def describe(report: BaseException | str, root: Path = ROOT) -> str:
    """Describe the limit of this machine that an error or a log reports, with the remedy; empty if it reports none."""
    text = report if isinstance(report, str) else f"{type(report).__name__}: {report}"
    return next((build(root) for pattern, build in _LIMITS if pattern.search(text)), "")


def describe_log(log: str) -> str:
    """Describe the end of a log, after the limit that it reports: another line of it may be the cause."""
    return "\n".join(filter(None, [describe(log), f"its log says:\n{log or '(nothing)'}"]))


def check(root: Path = ROOT) -> None:
    """Raise DeviceError where there is too little memory or too few threads for libraries, which end their process."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if 0 <= limit < _LEAST_MEMORY_BYTES:
        raise DeviceError(
            f"invalid limit of memory: each process has {format_size(limit)} (ulimit -v); expected at least "
            f"{format_size(_LEAST_MEMORY_BYTES)}. Raise it, such as with `ulimit -v unlimited`."
        )
    limit = max(resource.getrlimit(resource.RLIMIT_CPU))
    if 0 <= limit <= _LAST_S:
        raise DeviceError(_describe_processor_time(root))
    free = min(_count_free_threads(root), default=_LEAST_THREADS)
    if free < _LEAST_THREADS:
        raise DeviceError(
            _describe_processes(root, f"{max(free, 0)} further processes or threads can start, of {_LEAST_THREADS}")
        )


def reserve_processor_time() -> None:
    """Let the kernel send SIGXCPU before the limit of processor time (ulimit -t), where it kills without a word."""
    soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
    if 0 <= hard == soft > _LAST_S:
        resource.setrlimit(resource.RLIMIT_CPU, (soft - _LAST_S, hard))


def describe_memory(root: Path = ROOT) -> str:
    """Describe the tightest limit of the memory of this process."""
    bounds = [(size, "its container has {} of memory (memory.max)") for size in _read_groups(root, *_MEMORY_FILES)]
    bounds.append((os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), "this machine has {} of memory"))
    if (limit := resource.getrlimit(resource.RLIMIT_AS)[0]) >= 0:
        bounds.append((limit, "each process has {} of memory (ulimit -v)"))
    size, sentence = min(bounds)
    return sentence.format(format_size(size))


def is_near_file_limit(files: Iterable[Path]) -> bool:
    """Return whether one of these files is about as large as ``ulimit -f`` allows."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    return 0 <= limit < max((file.stat().st_size for file in files), default=0) + _PAGES_BYTES


def find_control_groups(controller: str, root: Path = ROOT, pid: int | str = "self") -> Iterator[Path]:
    """Find the folders of the control groups that contain a process, innermost first: each may set a limit.

    `controller` is ``memory`` or ``cpu``, which version 1 has a tree for; version 2 has one tree for all. A container
    often cannot see the folder that the kernel names, only its own as the topmost: that one is always the last.
    """
    try:
        lines = (root / f"proc/{pid}/cgroup").read_text(errors="replace").splitlines()
    except (OSError, MemoryError):  # it is asked for where memory has run out
        return
    for line in lines:
        _, names, path = line.split(":", 2)
        if controller in names.split(","):
            tops = [root / "sys/fs/cgroup" / name for name in (controller, names)]
        elif not names:
            tops = [root / "sys/fs/cgroup", root / "sys/fs/cgroup/unified"]
        else:
            continue
        inner = Path(path.lstrip("/"))
        folders = [folder for folder in (inner, *inner.parents) if ".." not in folder.parts]
        yield from dict.fromkeys(top / folder for top in tops for folder in folders)


def _read_groups(root: Path, controller: str, *names: str) -> Iterator[int]:
    """Read the numbers in these files of the control groups around this process."""
    for folder in find_control_groups(controller, root):
        for name in names:
            with suppress(OSError, ValueError, MemoryError):
                yield int((folder / name).read_text())


def _describe_memory(root: Path) -> str:
    return (
        f"out of memory: {describe_memory(root)}. Raise the limit, end other processes, or measure a smaller network "
        "or batch."
    )


def _count_free_threads(root: Path) -> Iterator[int]:
    """Count the threads that each limit still allows."""
    for folder in find_control_groups("pids", root):
        with suppress(OSError, ValueError):
            yield int((folder / "pids.max").read_text()) - int((folder / "pids.current").read_text())
    limit = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if os.geteuid() and 0 <= limit < _FEW_THREADS:  # root has no such limit
        threads = 0
        for process in (root / "proc").glob("[0-9]*"):
            with suppress(OSError):
                threads += len(os.listdir(process / "task")) if process.stat().st_uid == os.getuid() else 0  # noqa: PTH208
        yield limit - threads


def _describe_processes(root: Path, fault: str = "no further process or thread can start") -> str:
    limit = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    bounds = [(count, "its container may have {} (pids.max)") for count in _read_groups(root, "pids", "pids.max")]
    if limit >= 0 and os.geteuid():  # root has no such limit
        bounds.append((limit, "this user may have {} (ulimit -u)"))
    count, sentence = min(bounds, default=(0, "this machine has no room for one"))
    reserves = resource.getrlimit(resource.RLIMIT_AS)[0] >= 0  # each thread reserves a stack
    memory = f", and {describe_memory(root)}" if reserves else ""
    return f"{fault}: {sentence.format(count)}{memory}. Raise the limit or end other processes, and try again."


def _describe_file_size(_root: Path) -> str:
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if limit < 0:
        return ""
    return (
        f"a file may have at most {format_size(limit)} (ulimit -f). Raise the limit, such as with `ulimit -f "
        "unlimited`, and try again."
    )


def _describe_open_files(_root: Path) -> str:
    return "too many files are open. Raise the limit of open files, such as with `ulimit -n 4096`, and try again."


def _describe_processor_time(_root: Path) -> str:
    limit = max(resource.getrlimit(resource.RLIMIT_CPU))
    return (
        f"the processor time of this process, {limit} s (ulimit -t), is used up. Raise the limit, such as with "
        "`ulimit -t unlimited`, and try again."
    )


_MEMORY_FILES = ("memory", "memory.max", "memory.limit_in_bytes")
# The words of Python, C++, Linux and its loader.
_LACK = (
    "(?:MemoryError|bad_alloc|out.?of.?memory|not enough memory|can(?:'t|not) allocate memory|failed to allocate"
    "|failed to map segment)"
)
OUT_OF_MEMORY = re.compile(_LACK, re.IGNORECASE)
_LIMITS: tuple[tuple[re.Pattern[str], Callable[[Path], str]], ...] = (
    # An accelerator has memory of its own.
    (re.compile(f"^(?!.*(?:cuda|gpu|tensorrt)).*{_LACK}", re.IGNORECASE | re.MULTILINE), _describe_memory),
    (re.compile("Resource temporarily unavailable|can't start new thread|[Cc]annot fork"), _describe_processes),
    (re.compile("Too many open files"), _describe_open_files),
    (re.compile("File too large|SIGXFSZ"), _describe_file_size),
    (re.compile("SIGXCPU"), _describe_processor_time),
)
