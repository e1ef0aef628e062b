"""The share of an index of a job array.

Like nodes are one device, so a sweep's bundles are divided among the indices of an array. Each measures its share into
a journal of its own on the shared file system, from which the client collects; nothing else connects them.

    devices/LABEL/RUN/spec.json    what the array measures
    devices/LABEL/RUN/job          its number in the queue
    devices/LABEL/RUN/node.json    the first node, with which the others must agree
    devices/LABEL/RUN/7.sqlite     the journal of index 7, beside 7.log, its output
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict

import attrs

from ngbkit import validation
from ngbkit.device.spec import Spec
from ngbkit.errors import DeviceError, JournalError, UsageError
from ngbkit.hardware import environment
from ngbkit.options import STATE_DIR
from ngbkit.sweep import notes
from ngbkit.sweep.grid import Grid
from ngbkit.validation import Count, PositiveCount

# A batch system names the index of a process in one of these.
VARIABLES = ("SLURM_ARRAY_TASK_ID", "PBS_ARRAY_INDEX", "PBS_ARRAYID", "LSB_JOBINDEX", "SGE_TASK_ID")
_NODE = "node.json"


class _Fields(TypedDict):
    spec: Mapping[str, Any]
    indices: PositiveCount
    cores: tuple[Count, ...] | None
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArraySpec:
    """The measurements of a job array: its spec, and the cores and environment of each index."""

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
            fields = validation.parse(_Fields, json.loads(path.read_text(encoding="utf-8")))
            return cls(**{**fields, "spec": Spec.from_json(json.dumps(fields["spec"]))})
        except OSError as error:
            raise UsageError(f"cannot read the spec {path}: {error.strerror}. Submit the array again.") from error
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
            raise UsageError(
                f"invalid spec {path}: {error!r}. Submit the array again (`ngbkit runs --resume`)."
            ) from None


def divide(sweep: Grid, device: str, indices: int) -> list[frozenset[str]]:
    """Divide a device's trials among so many indices: the bundles in turn, so none is split, and always alike."""
    shares: list[set[str]] = [set() for _ in range(indices)]
    for number, bundle in enumerate(sweep.bundles(device)):
        shares[number % indices].update(trial.id for trial in bundle.trials)
    return [frozenset(share) for share in shares]


def prepare(path: Path, index: int) -> Spec:
    """Apply the device's settings to this process, and return the spec of an index, which has only its share to do."""
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
    return replace(array.spec, sweep=sweep, have=array.spec.have | others, node=node)


def read_index() -> int | None:
    """Read the index of this process from the variables of its batch system; None outside of one."""
    texts = (os.environ.get(name, "") for name in VARIABLES)
    return next((int(text) for text in texts if text.isdigit()), None)


def _share_budget(sweep: Grid, share: float) -> Grid:
    """Return a sweep that spends this share of the device's budget for tuning."""
    seconds = sweep.tuning_seconds
    return attrs.evolve(sweep, tuning_seconds=None if seconds is None else seconds * share)


def _check_node(path: Path) -> None:
    """Refuse a node unlike the first one of its run, since their numbers would not compare."""
    description = environment.describe()
    draft = path.with_name(f".{path.name}.{platform.node()}.{os.getpid()}")
    try:
        draft.write_text(json.dumps(description))
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)  # in one step: of several nodes at once, one is the first
    finally:
        draft.unlink(missing_ok=True)
    try:
        first = notes.parse("environment", "", json.loads(path.read_text(encoding="utf-8")))
        differences = environment.find_differences(first, description)
    except (JournalError, AttributeError, TypeError, ValueError, RecursionError) as error:
        raise DeviceError(
            f"invalid description of the first node in {path}: {error}. Remove that file, and resume the run."
        ) from None
    if differences:
        raise DeviceError(
            f"node {platform.node()} differs from the first one of this run: {'; '.join(differences)}. Limit the array "
            "to like nodes, by an option such as --constraint in `sbatch`, and resume the run."
        )
