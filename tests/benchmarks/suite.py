"""How long the checks of this repository take, beside what they may take; on a machine that does nothing else.

    python3 tests/benchmarks/suite.py                # in a fresh clone: .ci/run, then make test and make check there
    python3 tests/benchmarks/suite.py --beside 2     # make test alone, beside two busy processes: no limit is broken

The clone lies in a folder for temporary files (``--folder`` names another; its environment takes 8 GB) and is removed.
It needs no environment of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: Seconds that each may take on two cores.
TARGETS_S = {".ci/run": 14 * 60, "make test": 9 * 60, "make check": 90}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beside", type=int, default=0, metavar="N", help="busy processes to run beside `make test`")
    parser.add_argument("--folder", type=Path, help="where the clone goes (default: a folder for temporary files)")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder, prefix="ngbkit-suite-") as folder:
        clone = Path(folder) / "ngbkit"
        subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
        if asked.beside:
            subprocess.run(["make", "environment"], cwd=clone, check=True)
            with busy(asked.beside):
                rows = [timed(clone, "make", "test")]
        else:
            rows = [timed(clone, *words) for words in ((".ci/run",), ("make", "test"), ("make", "check"))]
    beside = f" beside {asked.beside} busy processes" if asked.beside else ""
    print(f"\non {len(os.sched_getaffinity(0))} cores{beside}")
    for command, seconds, code in rows:
        target = "" if asked.beside else f", target {clock(TARGETS_S[command])}"
        print(f"  {command:<12} {clock(seconds)}{target}{f', failed with {code}' if code else ''}")
    sys.exit(any(code for _, _, code in rows))


def timed(clone: Path, *words: str) -> tuple[str, float, int]:
    """A command in the clone: its words, its seconds, and its exit status."""
    began = time.monotonic()
    code = subprocess.run(words, cwd=clone, stdin=subprocess.DEVNULL, check=False).returncode
    return " ".join(words), time.monotonic() - began, code


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """Processes that compute for as long as the block lasts."""
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            # Until this process ends, however it does.
            process = subprocess.Popen([sys.executable, "-c", f"import os\nwhile os.getppid() == {os.getpid()}: pass"])
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield


def clock(seconds: float) -> str:
    return f"{int(seconds) // 60:2d} min {int(seconds) % 60:02d} s"


if __name__ == "__main__":
    main()
