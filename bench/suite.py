"""Measures the duration of the checks of this repository beside their limits, on an otherwise idle machine.

    python3 bench/suite.py                # in a fresh clone: .ci/run, then make test and make check there
    python3 bench/suite.py --beside 2     # make test alone, beside two busy processes: no limit is broken

The clone is in a temporary folder (``--folder`` sets another; its environment takes 8 GB) and is removed afterwards.
The script needs no environment of its own.
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

ROOT = Path(__file__).parents[1]
#: The limits on two cores, in seconds.
TARGETS_S = {".ci/run": 50 * 60, "make test": 10 * 60, "make check": 90}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beside", type=int, default=0, metavar="N", help="busy processes to run beside `make test`")
    parser.add_argument("--folder", type=Path, help="folder of the clone (default: a temporary folder)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder, prefix="ngbkit-suite-") as folder:
        clone = Path(folder) / "ngbkit"
        subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
        if args.beside:
            subprocess.run(["make", "environment"], cwd=clone, check=True)
            with run_busy(args.beside):
                rows = [time_command(clone, "make", "test")]
        else:
            rows = [time_command(clone, *words) for words in ((".ci/run",), ("make", "test"), ("make", "check"))]
    beside = f" beside {args.beside} busy processes" if args.beside else ""
    print(f"\non {len(os.sched_getaffinity(0))} cores{beside}")
    for command, seconds, code in rows:
        target = "" if args.beside else f", target {format_duration(TARGETS_S[command])}"
        print(f"  {command:<12} {format_duration(seconds)}{target}{f', failed with {code}' if code else ''}")
    sys.exit(any(code for _, _, code in rows))


def time_command(clone: Path, *words: str) -> tuple[str, float, int]:
    """Run a command in the clone, and return its words, its seconds and its exit status."""
    began = time.monotonic()
    code = subprocess.run(words, cwd=clone, stdin=subprocess.DEVNULL, check=False).returncode
    return " ".join(words), time.monotonic() - began, code


@contextlib.contextmanager
def run_busy(count: int) -> Iterator[None]:
    """Run computing processes for the duration of the block."""
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            # Each ends with this process.
            process = subprocess.Popen([sys.executable, "-c", f"import os\nwhile os.getppid() == {os.getpid()}: pass"])
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield


def format_duration(seconds: float) -> str:
    return f"{int(seconds) // 60:2d} min {int(seconds) % 60:02d} s"


if __name__ == "__main__":
    main()
