"""Ctrl-C during a magic in a real IPython shell: what was measured is bound, and the line on resuming is displayed."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import xarray as xr
from cells import fail_cell, run_cell
from IPython.core.interactiveshell import InteractiveShell
from patience import wait_until
from state import NewRuns

import ngbkit
from ngbkit.commands.signals import ignore_interrupts
from ngbkit.notebook import magics


def interrupt_after(new_runs: NewRuns, count: int) -> None:
    """Press Ctrl-C as soon as this many trials of a run are done."""

    def wait() -> None:
        wait_until(lambda: any(summary.statuses.get("ok", 0) >= count for summary in new_runs()))
        signal.raise_signal(signal.SIGINT)

    threading.Thread(target=wait, daemon=True).start()


def test_an_interrupt_binds_the_measurements_and_resume_adds_the_rest(
    shell: InteractiveShell, new_runs: NewRuns, mlp_file: Path
) -> None:
    """The message has the command to resume; later cells of a "Run All" do not run on half a dataset."""
    interrupt_after(new_runs, 2)
    line = f'%ngbench {mlp_file} -c identity,slow{{"seconds":0.05}} -b 1:4 -r 20 -o part'
    error, output = fail_cell(shell, line)
    (run,) = new_runs()
    run_cell(shell, f"%ngruns --resume {run.id[:-1]} -o full")
    part, full = shell.user_ns["part"], shell.user_ns["full"]

    assert isinstance(error, KeyboardInterrupt)
    assert f"`part` is their dataset. Resume with: `%ngruns --resume {run.id}`" in output
    assert "Traceback" not in output
    assert {"ok", "pending"} == set(part["status"].values.ravel())
    assert {"ok"} == set(full["status"].values.ravel())
    xr.testing.assert_identical(part["latency"].sel(batch_size=1), full["latency"].sel(batch_size=1))


def test_an_echo_does_not_disturb_what_the_first_interrupt_shows(
    shell: InteractiveShell, new_runs: NewRuns, mlp_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pressed again while the first is handled, the table of what was measured is shown and bound."""

    @contextmanager
    def echo() -> Iterator[None]:
        signal.raise_signal(signal.SIGINT)
        with ignore_interrupts():
            yield

    monkeypatch.setattr(magics, "ignore_interrupts", echo)
    interrupt_after(new_runs, 1)
    fail_cell(shell, f'%ngbench {mlp_file} -c slow{{"seconds":0.05}} -b 1:4 -r 20 -o part')

    assert {"ok", "pending"} == set(shell.user_ns["part"]["status"].values.ravel())
    assert signal.default_int_handler == signal.getsignal(signal.SIGINT)


def test_an_interrupt_of_a_call_names_the_call_to_resume(
    shell: InteractiveShell, new_runs: NewRuns, mlp_file: Path
) -> None:
    """An interrupted call prints the call that resumes it, without a traceback."""
    interrupt_after(new_runs, 1)
    shell.user_ns["ngbkit"] = ngbkit
    sweep = (
        f"ngbkit.Sweep(['{mlp_file}'], compilers=['slow{{\"seconds\":0.05}}'], batch_sizes=[1, 2, 3, 4], repeats=20)"
    )
    _, output = fail_cell(shell, f"{sweep}.run()")
    (run,) = new_runs()

    assert re.search(r"KeyboardInterrupt: stopped after \d of 4 trials(, and within 1 more)?; they are kept\.", output)
    assert output.strip().endswith(f"Resume with: `ngbkit.resume('{run.id}')`")


def test_an_interrupted_selfcheck_names_the_command_to_resume(shell: InteractiveShell, new_runs: NewRuns) -> None:
    """An interrupted self-check keeps its measurements and prints how to resume it."""
    interrupt_after(new_runs, 2)
    error, output = fail_cell(shell, "%ngselfcheck --groups 30 -r 12 --threads 1")
    (run,) = new_runs()

    assert isinstance(error, KeyboardInterrupt)
    assert f"Resume with: `%ngruns --resume {run.id}` and then: `%ngselfcheck {run.id}`" in output
