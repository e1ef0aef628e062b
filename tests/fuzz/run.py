"""Runs the fuzzers of this folder for long: ``python tests/fuzz/run.py journals --cases 10000``, or all of them.

Each ``fuzz_<subject>.py`` has a function ``run(cases, seed)``, which raises on a finding and prints a line of counts.
The tests beside them run a few hundred cases each.
"""

from __future__ import annotations

import argparse
import importlib
import secrets
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).parent


def list_subjects() -> list[str]:
    """List the subjects that have a fuzzer."""
    return sorted(path.stem.removeprefix("fuzz_") for path in FOLDER.glob("fuzz_*.py"))


def main(arguments: Sequence[str]) -> int:
    """Run the fuzzers that the command line names; return 1 if any of them raises."""
    parser = argparse.ArgumentParser(prog="tests/fuzz/run.py", description="run fuzzers for many cases")
    parser.add_argument(
        "subjects", nargs="*", metavar="SUBJECT", help=f"of {', '.join(list_subjects())} (default: all)"
    )
    parser.add_argument("--cases", type=int, default=10_000, help="cases of each subject (default: 10000)")
    parser.add_argument("--seed", type=int, default=None, help="repeats a run; each line names its seed")
    args = parser.parse_args(arguments)
    if unknown := set(args.subjects) - set(list_subjects()):
        parser.error(f"unknown subjects: {', '.join(sorted(unknown))}")
    seed = secrets.randbits(32) if args.seed is None else args.seed
    failures = [subject for subject in args.subjects or list_subjects() if not _run_subject(subject, args.cases, seed)]
    return int(bool(failures))


def _run_subject(subject: str, cases: int, seed: int) -> bool:
    """Run a fuzzer and report what it raises; return whether it raised nothing."""
    start = time.monotonic()
    try:
        importlib.import_module(f"fuzz_{subject}").run(cases, seed)
    except Exception:  # noqa: BLE001  a finding may be any exception, and the other subjects run all the same
        traceback.print_exc()
    else:
        print(f"{subject}: no finding with --seed {seed}, {time.monotonic() - start:.0f} s", flush=True)
        return True
    print(f"{subject}: a finding with --seed {seed}", file=sys.stderr, flush=True)
    return False


if __name__ == "__main__":
    sys.path.insert(0, str(FOLDER))
    sys.exit(main(sys.argv[1:]))
