"""The interface between client and device: the spec of a plan, the format of both, the type of an event."""

from __future__ import annotations

import functools
import json
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ngbkit import files
from ngbkit.device.world import World
from ngbkit.errors import DeviceError
from ngbkit.files import Store
from ngbkit.options import LAYOUT
from ngbkit.sweep.grid import Grid

EVENT_MIME = "application/vnd.ngbkit.event+json"
"""The type of an event: a text with one JSON object."""
FORMAT = 3
"""Of specs, events and replies: both sides must have the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """The spec of a plan."""

    # The run that this plan is part of, and the client's label of this device.
    run_id: str
    device: str
    # This device's folder for journals, artifacts and prepared workloads.
    state_dir: Path
    # The whole sweep; the plan runs the trials of `device`.
    sweep: Grid
    # The plan repeats trials whose record has one of these statuses, and these trials.
    retry: frozenset[str] = frozenset()
    retry_ids: frozenset[str] = frozenset()
    # Identifies that request, which a device grants once: several engines may receive the same plan one after another.
    retry_id: str = ""
    # Trials whose record the client has: not run again, even if the device's own journal is lost.
    have: frozenset[str] = frozenset()
    # Measured trials to measure once more beside others of their group: the client adds these rounds to theirs.
    beside_ids: frozenset[str] = frozenset()
    # Threads of each runtime unless the sweep sets them, from the devices file. None: one per usable core.
    threads: int | None = None
    # The chip that the device measures on: ``"cpu"``, or ``"cuda:0"``.
    accelerator: str = "cpu"
    # The node of an index of a job array, which is set there and not sent.
    node: str = ""
    # Whether the plan only prepares the networks, so that their contents are known.
    only_prepares: bool = False
    # The surroundings in which networks are built; None for those of the engine. Only an engine of this machine gets
    # one: the spec of a job array is written to disk.
    world: World | None = None

    @property
    def place(self) -> str:
        """The name of the lock and the caches of this machine: like nodes are one device, and share a state folder."""
        return f"{self.device}.{self.node}" if self.node else self.device

    def to_json(self) -> str:
        return json.dumps(
            {
                "run_id": self.run_id,
                "device": self.device,
                "state_dir": str(self.state_dir),
                "sweep": self.sweep.to_json(),
                "retry": sorted(self.retry),
                "retry_ids": sorted(self.retry_ids),
                "retry_id": self.retry_id,
                "have": sorted(self.have),
                "beside_ids": sorted(self.beside_ids),
                "threads": self.threads,
                "accelerator": self.accelerator,
                "only_prepares": self.only_prepares,
                "world": self.world and self.world.to_json(),
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Spec:
        data = json.loads(text)
        state_dir = Path(data["state_dir"])
        return cls(
            run_id=data["run_id"],
            device=data["device"],
            state_dir=state_dir,
            sweep=Grid.from_json(data["sweep"], locate=Store(state_dir / LAYOUT.artifacts).locate),
            retry=frozenset(data["retry"]),
            retry_ids=frozenset(data["retry_ids"]),
            retry_id=data["retry_id"],
            have=frozenset(data["have"]),
            beside_ids=frozenset(data["beside_ids"]),
            threads=data["threads"],
            accelerator=data["accelerator"],
            only_prepares=data["only_prepares"],
            world=World.from_json(data["world"]) if data.get("world") else None,
        )


def answer_errors(request: Callable[..., str]) -> Callable[..., str]:
    """Answer a request that fails with its error, ``state`` being ``"error"``: ipyparallel would show a traceback."""

    @functools.wraps(request)
    def answer(*arguments: Any) -> str:
        try:
            return request(*arguments)
        except Exception as error:  # noqa: BLE001  the client shows all of them in one way
            frame = traceback.extract_tb(error.__traceback__)[-1]
            place = f"in {Path(frame.filename).name}, line {frame.lineno}"
            explained = files.explain(error) or DeviceError(f"the engine failed with {error!r} {place}.")
            return json.dumps({"state": "error", "kind": type(explained).__name__, "error": str(explained)})

    return answer
