"""A device without an engine: an index of a job array, and requests that a command answers.

Like nodes are one device, so a sweep's bundles are divided among the indices of an array. Each measures its share into
a journal of its own on the shared file system, from which the client collects; nothing else connects them.

    devices/LABEL/RUN/spec.json    what the array measures
    devices/LABEL/RUN/job          its number in the queue
    devices/LABEL/RUN/node.json    the first node, with which the others must agree
    devices/LABEL/RUN/7.sqlite     the journal of index 7, beside 7.log, its output
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import re
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import attrs

from ngbkit.device import plan
from ngbkit.device.process_lifetime import announce_end, end_group
from ngbkit.device.spec import Spec
from ngbkit.errors import DeviceError, NgbkitError, UsageError
from ngbkit.hardware import environment
from ngbkit.options import STATE_DIR
from ngbkit.sweep.grid import Grid

# A batch system names the index of a process in one of these.
_VARIABLES = ("SLURM_ARRAY_TASK_ID", "PBS_ARRAY_INDEX", "PBS_ARRAYID", "LSB_JOBINDEX", "SGE_TASK_ID")
_SPEC, _NODE = "spec.json", "node.json"
# After the signal that ends a job, the plan has this long to take back what is in flight.
_GRACE_S = 5.0
_REQUESTS: Mapping[str, Callable[..., str]] = {
    "hello": plan.hello,
    "missing": plan.missing,
    "receive": plan.receive,
    "received": plan.received,
    "collect": plan.collect,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ArraySpec:
    """What a job array measures."""

    spec: Spec
    # The number of indices.
    indices: int
    # The cores of each index, if the device has some only, and environment variables.
    cores: tuple[int, ...] | None = None
    environment: Mapping[str, str]

    def to_json(self) -> str:
        fields = {"indices": self.indices, "cores": self.cores, "environment": dict(self.environment)}
        return json.dumps({"spec": json.loads(self.spec.to_json()), **fields})

    @classmethod
    def load(cls, path: Path) -> ArraySpec:
        """Load what `to_json` wrote; UsageError if the file holds something else."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            return cls(
                spec=Spec.from_json(json.dumps(data["spec"])),
                indices=int(data["indices"]),
                cores=tuple(data["cores"]) if data["cores"] else None,
                environment=dict(data["environment"]),
            )
        except OSError as error:
            raise UsageError(f"cannot read the spec {path}: {error.strerror}. Submit the array again.") from error
        except (LookupError, TypeError, ValueError, RecursionError) as error:
            raise UsageError(f"invalid spec {path}: {error!r}. Submit the array again (`ngbkit resume`).") from None


def divide(sweep: Grid, device: str, indices: int) -> list[frozenset[str]]:
    """Divide a device's trials among so many indices: the bundles in turn, so none is split, and always alike."""
    shares: list[set[str]] = [set() for _ in range(indices)]
    for number, bundle in enumerate(sweep.bundles(device)):
        shares[number % indices].update(trial.id for trial in bundle.trials)
    return [frozenset(share) for share in shares]


def run_index(path: Path, index: int) -> str:
    """Measure the share of an index; return ``"finished"`` or ``"stopped"``."""
    array = ArraySpec.load(path)
    if not 0 <= index < array.indices:
        raise UsageError(f"invalid index: got {index}; expected 0 to {array.indices - 1}.")
    if array.cores:
        os.sched_setaffinity(0, array.cores)
    os.environ.update(array.environment)
    os.environ[STATE_DIR] = str(array.spec.state_dir)
    _check_node(path.with_name(_NODE))
    shares = divide(array.spec.sweep, array.spec.device, array.indices)
    others = frozenset().union(*shares) - shares[index]
    node = re.sub(r"[^\w.-]", "-", platform.node(), flags=re.ASCII)
    sweep = _share_budget(array.spec.sweep, len(shares[index]) / max(1, sum(map(len, shares))))
    spec = replace(array.spec, sweep=sweep, have=array.spec.have | others, node=node)
    return plan.carry_out(spec, _print_event, index)


def _share_budget(sweep: Grid, share: float) -> Grid:
    """Return a sweep that spends this share of the device's budget for tuning."""
    seconds, candidates = sweep.tuning_seconds, sweep.tuning_candidates
    return attrs.evolve(
        sweep,
        tuning_seconds=None if seconds is None else seconds * share,
        tuning_candidates=None if candidates is None else max(1, round(candidates * share)),
    )


def _check_node(path: Path) -> None:
    """Refuse a node unlike the first one of its run, since their numbers would not compare."""
    here = environment.describe()
    draft = path.with_name(f".{path.name}.{platform.node()}.{os.getpid()}")
    try:
        draft.write_text(json.dumps(here))
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)  # in one step: of several nodes at once, one is the first
    finally:
        draft.unlink(missing_ok=True)
    differences = environment.find_differences(json.loads(path.read_text(encoding="utf-8")), here)
    if differences:
        raise DeviceError(
            f"node {platform.node()} differs from the first one of this run: {'; '.join(differences)}. Limit the array "
            "to like nodes, by an option such as --constraint in `sbatch`, and resume the run."
        )


def _print_event(event: dict[str, Any]) -> None:
    """Print the progress to the log of the index."""
    if event.get("kind") in ("stage", "salvaged") or event.get("done") == 0:
        _print(event.get("text") or json.dumps(event))


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def answer(request: str, stream: BinaryIO) -> str:
    """Answer a request, whose JSON is the first line of a stream and whose bytes, if it has some, are the rest."""
    text = stream.readline().decode()
    chunk = stream.read()
    return _REQUESTS[request](text, *([chunk] if request == "receive" else []))


def main(arguments: Sequence[str]) -> None:
    """Run one command line."""
    parser = argparse.ArgumentParser(prog="python -m ngbkit.device.plan", description="measure without an engine")
    parser.add_argument("spec", type=Path, nargs="?", metavar="SPEC", help="measure the share of one index")
    parser.add_argument("--index", type=int, help=f"the index (default: ${', $'.join(_VARIABLES)})")
    parser.add_argument("--call", choices=sorted(_REQUESTS), help="answer a request of the standard input")
    chosen = parser.parse_args(arguments)
    os.umask(0o077)
    if chosen.call is not None:
        sys.stdout.write(answer(chosen.call, sys.stdin.buffer) + "\n")
        return
    index = chosen.index if chosen.index is not None else _read_index()
    if chosen.spec is None or index is None:
        parser.error(f"expected SPEC and an index: --index, or one of {', '.join(_VARIABLES)} of a batch system")
    signal.signal(signal.SIGTERM, _stop)
    try:
        state = run_index(chosen.spec, index)
    except NgbkitError as error:
        sys.exit(f"index {index}: {error}")
    _print(f"index {index} has {state}")


def _read_index() -> int | None:
    texts = (os.environ.get(name, "") for name in _VARIABLES)
    return next((int(text) for text in texts if text.isdigit()), None)


def _stop(*_: object) -> None:
    """Stop as by an interrupt, which takes back what is in flight: the batch system may signal children as well."""
    announce_end()
    timer = threading.Timer(_GRACE_S, end_group)
    timer.daemon = True
    timer.start()
    signal.raise_signal(signal.SIGINT)
