"""A program that ends while a run measures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from patience import limit_s

PROGRAM = """
import sys
import ngbkit

run = ngbkit.Sweep([sys.argv[1]], ['slow{"seconds":0.05}'], repeats=20_000, threads=1, min_rounds=2).start()
while not run.progress.share and not run.ended:
    run.wait_for_change(1)
print(run.id)
"""


def test_the_end_of_a_program_stops_its_runs(mlp_file: Path) -> None:
    """The end of a program stops its runs and prints how to resume each."""
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(mlp_file)], capture_output=True, text=True, check=True, timeout=limit_s(120)
    )

    assert (
        f"ngbkit: stopped after 0 of 1 trials. Resume with: `ngbkit runs --resume {process.stdout.strip()}`\n"
    ) == process.stderr
