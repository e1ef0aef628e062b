"""Compiled networks of one group that stay loaded, as a run has them while it measures."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ngbkit.api import Sweep
from ngbkit.device.groups.bench import Bench
from ngbkit.device.groups.worker import Worker
from ngbkit.device.spec import Spec
from ngbkit.sweep.journal import Journal


@contextmanager
def load_workers(sweep: Sweep, state: Path) -> Iterator[list[Worker]]:
    """Load a worker for each compiler of a sweep with one group, warmed up; they end with the block."""
    with ExitStack() as stack:
        spec = Spec(run_id="loaded", device="cpu", state_dir=state.resolve(), sweep=sweep)
        scratch = stack.enter_context(tempfile.TemporaryDirectory())
        journal = stack.enter_context(Journal(Path(scratch) / "journal.sqlite"))
        reader, writer = os.pipe()
        stack.callback(os.close, writer)
        bench = Bench(spec=spec, journal=journal, interrupt=reader, publish=lambda event: None)
        bench.warm_servers()
        (group,) = sweep.groups("cpu")
        yield stack.enter_context(bench._load_workers(bench._list_jobs(group), [], []))
