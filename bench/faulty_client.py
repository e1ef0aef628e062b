"""The client of `faults`: drives one run, and prints a line of JSON for every event.

    faulty_client.py start NETWORK '{"compilers": […], "batch_sizes": […], "repeats": 5, "devices": ["cpu"]}'
    faulty_client.py resume RUN
    faulty_client.py touch DEVICE

The last starts and closes the engine of a device, which removes the remains of other clients there.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

from ngbkit import runs
from ngbkit.api import Sweep
from ngbkit.cluster import engines
from ngbkit.errors import NgbkitError
from ngbkit.runs import Run
from ngbkit.workloads import onnx

# The run reports on a thread of its own.
_lock = threading.Lock()


def main(command: str, *arguments: str) -> None:
    """Execute one command line; the last line of output has `state`."""
    try:
        if command == "touch":
            engines.acquire(arguments[0]).hello()
            _report(state="finished")
        else:
            _drive(_start(command, *arguments))
    except NgbkitError as error:
        _report(state="failed", kind=type(error).__name__, error=str(error))
    engines.close()


def _start(command: str, *arguments: str) -> Run:
    if command == "resume":
        return runs.resume(arguments[0])
    network, sweep = arguments
    return Sweep(onnx.file(network), threads=1, **json.loads(sweep)).start()


def _drive(run: Run) -> None:
    _report(run=run.id, trials=[trial.id for trial in run.sweep.trials()])
    run.subscribe(lambda run: _report(done=run.progress.done, text=run.progress.text))
    run.wait()
    if run.error is not None:
        raise run.error
    _report(state=run.state)


def _report(**fields: Any) -> None:
    with _lock:
        print(json.dumps(fields), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
