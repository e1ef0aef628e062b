"""Bisects the releases of a compiler by runs: each gate is a run, and a stopped bisection continues."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from attrs import evolve

from ngbkit import options, validation
from ngbkit.dataset.environments import read_environments
from ngbkit.device.release_index import list_indexed_releases
from ngbkit.errors import RunInterruptedError, RunNotFoundError, UsageError
from ngbkit.files import write_atomically
from ngbkit.hardware.environment import list_refusals
from ngbkit.metrics.gates.gate import MARGIN
from ngbkit.runs import lifecycle
from ngbkit.runs.bisection.search import Bisection, ReleaseSearch
from ngbkit.runs.folders import find, load_dataset
from ngbkit.sweep.column import Column
from ngbkit.sweep.grid import Grid
from ngbkit.user_text import format_count, parse_json
from ngbkit.workloads.base import hash_json

if TYPE_CHECKING:
    from ngbkit.cluster.engine import Engine
    from ngbkit.dataset.storage import Data
    from ngbkit.runs.run import Run
    from ngbkit.workloads.base import Workload

_FORMAT = 1
# The longest note of a run.
_LONGEST_NOTE = 200


def bisect(
    network: str | Workload,
    compiler: str,
    releases: str | Sequence[str],
    *,
    margin: float | str | None = None,
    again: bool = False,
    wait: Callable[[Run], Data] | None = None,
    report: Callable[[str], object] = str,
    engines: Mapping[str, Engine] | None = None,
    **keywords: Any,
) -> Bisection:
    """Find the release of a compiler since which a network is slower, with a probability of 95 %, by few gates.

    The first gate compares the first release with the last; each later one measures a release between them beside both,
    in turns.

    Parameters
    ----------
    network, compiler
        One network, and the label of one compiler without a release: ``"onnxruntime"``.
    releases
        The releases to choose from, the fast one first, as a list or with commas. Or both ends, ``"1.19..1.23"``: the
        index of uv lists those between them, without previews and yanked ones; ``1.19`` is 1.19.0, or the newest 1.19.x
        where there is no such release.
    margin
        The slowdown that is accepted: 0.01, or ``"1%"``, the default.
    again
        Measure every gate. Default: a bisection that was stopped continues, and one that ended is read.
    wait, report
        Waits for the run of a gate and returns its dataset; receives a line of progress. Default: `Run.result`; none.
    engines
        As for `Sweep.start`.
    **keywords
        The batch size, the device and other options of a `Sweep` of one trial.

    Raises
    ------
    UsageError
        An option or a release is invalid, the index cannot be read, or the first or the last release has no result.

    Examples
    --------
    >>> import ngbkit
    >>> print(ngbkit.bisect("resnet18", "onnxruntime", "1.19..1.23"))  # doctest: +SKIP
    """
    share = validation.check("margin", validation.Margin, MARGIN if margin is None else margin)
    sweep = Grid(**{**keywords, "workloads": network, "compilers": compiler})
    text = releases if isinstance(releases, str) else ",".join(releases)
    ends = [*map(str.strip, text.split(".."))] if ".." in text else []
    listed = ends or [*map(str.strip, text.split(","))]
    column = _check(sweep, listed, text)
    log = _GateLog({"sweep": sweep.id, "releases": text}, again=again)
    if not log.releases:
        log.releases = tuple(dict.fromkeys(listed))
        if ends:
            report(f"listing the releases of {column.compiler}")
            indexed = list_indexed_releases(column.load_compiler().distribution, *ends)
            log.releases, log.skipped = indexed.releases, indexed.skipped
        log.save()
    elif log.gates:
        count = format_count(len(log.gates), "gate", "gates")
        report(f"continuing after {count}; one whose run was deleted (`ngbkit runs --delete ID`) is measured again")
    skipped = f", {len(log.skipped)} skipped" if log.skipped else ""
    report(f"{len(log.releases)} releases from {log.releases[0]} to {log.releases[-1]}{skipped}")

    def measure(columns: Sequence[str]) -> tuple[Data, str, float]:
        gate = log.take(columns)
        if gate is not None and gate["seconds"]:
            data = load_dataset(find(gate["run_id"]))
            if not _has_refusal(data):
                return data, gate["run_id"], gate["seconds"]
            log.remove([gate["run_id"]])
            gate = None
        start = time.monotonic()
        report(f"{', '.join(columns[:-1])} and {columns[-1]} take turns")
        if gate is None:
            note = f"bisection of {sweep.workloads[0].name}, {column.compiler} {log.releases[0]} to {log.releases[-1]}"
            run = lifecycle.start(evolve(sweep, compilers=columns), engines=engines, note=note[:_LONGEST_NOTE])
            gate = log.add(columns, run.id)
        else:
            run = lifecycle.resume(gate["run_id"], engines=engines)
        try:
            data = run.result() if wait is None else wait(run)
        except KeyboardInterrupt:
            raise RunInterruptedError(
                f"stopped in run {run.id}. The same command continues, and measures no finished gate again."
            ) from None
        gate["seconds"] = time.monotonic() - start
        log.save()
        if _has_refusal(data):
            log.remove([run.id])
        return data, run.id, gate["seconds"]

    search = ReleaseSearch(
        network=sweep.workloads[0].name,
        device=sweep.devices[0],
        column=column,
        releases=log.releases,
        skipped=dict(log.skipped),
        margin=share,
        measure=measure,
        report=report,
    )
    bisection = search.carry_out()
    if bisection.verdict == "not conclusive":
        log.remove(search.contended)
    return bisection


class _GateLog:
    """The file of a bisection: its releases, and the run of each gate with its seconds, 0 until it ends."""

    def __init__(self, request: Mapping[str, Any], *, again: bool) -> None:
        folder = options.make_state_dir() / options.LAYOUT.bisections
        self._path = folder / f"{hash_json(dict(request))[:20]}.json"
        self._used: set[str] = set()
        content: Any = None
        with suppress(OSError, ValueError):
            content = None if again else parse_json(self._path.read_text(encoding="utf-8"))
        if not isinstance(content, dict) or content.get("format") != _FORMAT:
            content = {"releases": [], "skipped": {}, "gates": []}
        self.releases: tuple[str, ...] = tuple(content["releases"])
        self.skipped: dict[str, str] = content["skipped"]
        self.gates: list[dict[str, Any]] = content["gates"]

    def take(self, columns: Sequence[str]) -> dict[str, Any] | None:
        """Take a gate of these columns that this call has not used yet, and whose run exists."""
        for gate in self.gates:
            if gate["columns"] == list(columns) and gate["run_id"] not in self._used:
                self._used.add(gate["run_id"])
                with suppress(RunNotFoundError):
                    find(gate["run_id"])
                    return gate
        return None

    def add(self, columns: Sequence[str], run_id: str) -> dict[str, Any]:
        """Add a gate whose run has just begun."""
        self.gates.append({"columns": list(columns), "run_id": run_id, "seconds": 0.0})
        self._used.add(run_id)
        self.save()
        return self.gates[-1]

    def remove(self, run_ids: Collection[str]) -> None:
        """Remove gates, so that the next call measures them again."""
        self.gates = [gate for gate in self.gates if gate["run_id"] not in run_ids]
        self.save()

    def save(self) -> None:
        """Write the log."""
        options.make_private(self._path.parent)
        content = {"format": _FORMAT, "releases": self.releases, "skipped": self.skipped, "gates": self.gates}
        with write_atomically(self._path) as draft:
            draft.write_text(json.dumps(content), encoding="utf-8")


def _has_refusal(data: Data) -> bool:
    """Return whether a release of a gate could not be installed, which another attempt may do."""
    return any(list_refusals(device) for device in read_environments(data).values())


def _check(sweep: Grid, releases: Sequence[str], text: str) -> Column:
    """Check what is to be bisected, and return its column."""
    column = Column.read(sweep.compilers[0])
    if len(sweep) != 1 or column.release:
        raise UsageError(
            f"invalid bisection: got {format_count(len(sweep), 'trial', 'trials')} with {', '.join(sweep.compilers)}; "
            "expected one network, batch size and device, and one compiler without a release, such as "
            "`ngbkit gate resnet18 -c onnxruntime --releases 1.19..1.23`."
        )
    compiler = column.load_compiler()
    if len(releases) < 2 or (".." in text and len(releases) > 2):
        raise UsageError(
            f"invalid releases: got {text!r}; expected all to choose from, the fast one first, such as "
            "1.19.2,1.20.1,1.21.0, or both ends, such as 1.19..1.21."
        )
    for release in releases:
        compiler.check_release(release)
    return column
