"""What client and device agree on: the spec of a plan, the format that both speak, the type of an event."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from ngbkit.files import Store
from ngbkit.sweep.grid import Sweep

EVENT_MIME = "application/vnd.ngbkit.event+json"
FORMAT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """What a plan is told.

    Parameters
    ----------
    run_id, device
        Which run this is part of, and what the client calls this device.
    state_dir
        Where this device keeps journals, artifacts and prepared workloads.
    sweep
        The whole sweep; the plan carries out the trials of `device`.
    retry
        Trials whose record has one of these statuses are run again.
    retry_id
        Names that wish, which a device grants once: the same plan may be sent to several engines, one after the other.
    have
        Trials whose record the client has: not run again, whatever has become of the device's own journal.
    threads
        Worker threads where the sweep does not say: the devices file's choice. None: a core that the engine may use
        each.
    accelerator
        What the device measures on: ``"cpu"``, or ``"cuda:0"``.
    """

    run_id: str
    device: str
    state_dir: Path
    sweep: Sweep
    retry: frozenset[str] = frozenset()
    retry_id: str = ""
    have: frozenset[str] = frozenset()
    threads: int | None = None
    accelerator: str = "cpu"

    def to_json(self) -> str:
        return json.dumps(
            {
                "run_id": self.run_id,
                "device": self.device,
                "state_dir": str(self.state_dir),
                "sweep": self.sweep.to_json(),
                "retry": sorted(self.retry),
                "retry_id": self.retry_id,
                "have": sorted(self.have),
                "threads": self.threads,
                "accelerator": self.accelerator,
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
            sweep=Sweep.from_json(data["sweep"], locate=Store(state_dir / "artifacts").path),
            retry=frozenset(data["retry"]),
            retry_id=data["retry_id"],
            have=frozenset(data["have"]),
            threads=data["threads"],
            accelerator=data["accelerator"],
        )
