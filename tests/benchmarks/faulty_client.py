"""The client of `faults`: a program that drives one run and tells of it, a line of JSON whenever something happens.

    faulty_client.py start NETWORK '{"compilers": […], "batch_sizes": […], "repeats": 5, "devices": ["cpu"]}'
    faulty_client.py resume RUN
    faulty_client.py touch DEVICE

The last starts the engine of a device and ends it again, which cleans up what others have left there.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

from ngbkit import runs
from ngbkit.cluster import engines
from ngbkit.errors import NgbkitError
from ngbkit.runs import Run
from ngbkit.sweep.grid import Sweep
from ngbkit.workloads import onnx

# The run tells on a thread of its own.
_telling = threading.Lock()


def main(what: str, *arguments: str) -> None:
    """Carry out one command line; the last line that is told has `state`."""
    try:
        if what == "touch":
            engines.engine(arguments[0]).hello()
            _tell(state="finished")
        else:
            _drive(_begin(what, *arguments))
    except NgbkitError as error:
        _tell(state="failed", kind=type(error).__name__, error=str(error))
    engines.close()


def _begin(what: str, *arguments: str) -> Run:
    if what == "resume":
        return runs.resume(arguments[0])
    network, sweep = arguments
    return Sweep(onnx.file(network), threads=1, **json.loads(sweep)).start()


def _drive(run: Run) -> None:
    _tell(run=run.id, trials=[trial.id for trial in run.sweep.trials()])
    run.subscribe(lambda run: _tell(done=run.progress.done, text=run.progress.text))
    run.wait()
    if run.error is not None:
        raise run.error
    _tell(state=run.state)


def _tell(**what: Any) -> None:
    with _telling:
        print(json.dumps(what), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
