"""The log of a bisection: its releases, and the run of each gate, so that the same call continues it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ngbkit import options
from ngbkit.device.release_index import IndexedReleases
from ngbkit.errors import RunNotFoundError
from ngbkit.files import write_atomically
from ngbkit.runs.folders import find
from ngbkit.user_text import parse_json
from ngbkit.workloads.base import hash_json

FORMAT = 1


@dataclass(slots=True, kw_only=True)
class LoggedGate:
    """A gate that was begun: the columns and the id of its run, and its duration, 0 until it ends."""

    columns: tuple[str, ...]
    run_id: str
    seconds: float = 0.0


@dataclass(slots=True)
class GateLog:
    """The releases and the gates of one bisection, in a file of the state folder."""

    path: Path
    releases: tuple[str, ...] = ()
    skipped: dict[str, str] = field(default_factory=dict)
    gates: list[LoggedGate] = field(default_factory=list)
    _used: set[str] = field(default_factory=set)

    @classmethod
    def open(cls, request: Mapping[str, Any], *, again: bool) -> GateLog:
        """Open the log of the bisection that asks for this; an empty one for the first, or to begin `again`."""
        path = options.make_state_dir() / options.LAYOUT.bisections / f"{hash_json(dict(request))[:20]}.json"
        if again:
            path.unlink(missing_ok=True)
        with suppress(OSError, ValueError, TypeError, KeyError):
            content = parse_json(path.read_text(encoding="utf-8"))
            gates = [LoggedGate(**{**gate, "columns": tuple(gate["columns"])}) for gate in content["gates"]]
            if content["format"] == FORMAT:
                return cls(path, tuple(content["releases"]), dict(content["skipped"]), gates)
        return cls(path)

    def set_releases(self, indexed: IndexedReleases) -> None:
        """Set the releases; those of a continued bisection stay, whatever has been released since."""
        self.releases, self.skipped = indexed.releases, dict(indexed.skipped)
        self.save()

    def find_gate(self, columns: Sequence[str]) -> LoggedGate | None:
        """Find a gate of these columns that this call has not used yet, and whose run exists; mark it as used."""
        for gate in self.gates:
            if gate.columns == tuple(columns) and gate.run_id not in self._used:
                self._used.add(gate.run_id)
                with suppress(RunNotFoundError):
                    find(gate.run_id)
                    return gate
        return None

    def add(self, columns: Sequence[str], run_id: str) -> LoggedGate:
        """Add a gate whose run has just begun."""
        self.gates.append(LoggedGate(columns=tuple(columns), run_id=run_id))
        self._used.add(run_id)
        self.save()
        return self.gates[-1]

    def remove(self, run_ids: Collection[str]) -> None:
        """Remove gates, so that the next call measures them again."""
        self.gates = [gate for gate in self.gates if gate.run_id not in run_ids]
        self.save()

    def save(self) -> None:
        """Write the log."""
        options.make_private(self.path.parent)
        content = {
            "format": FORMAT,
            "releases": self.releases,
            "skipped": self.skipped,
            "gates": [asdict(gate) for gate in self.gates],
        }
        with write_atomically(self.path) as draft:
            draft.write_text(json.dumps(content), encoding="utf-8")
