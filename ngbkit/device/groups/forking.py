"""The children of a plan: each trial runs in a process of its own, forked from a warm server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from ngbkit.device.groups.tuning import JournalledSearch
from ngbkit.device.groups.worker import TrialFailedError, Worker, build_failure
from ngbkit.device.isolation.channel import Message
from ngbkit.device.isolation.server_pool import choose_memory, choose_threads, get_servers, list_modules
from ngbkit.device.isolation.servers import ServerEndedError
from ngbkit.device.spec import Spec
from ngbkit.files import check_disk
from ngbkit.hardware import telemetry
from ngbkit.hardware.host import HostMonitor
from ngbkit.hardware.telemetry import Chip, Meter
from ngbkit.options import LAYOUT
from ngbkit.sweep.journal import Journal
from ngbkit.sweep.memory import KEPT
from ngbkit.sweep.trials import Group, Trial


@dataclass(slots=True, kw_only=True)
class Forker:
    """Forks the workers of one plan, and reports to its client."""

    spec: Spec
    # Contains each record before its event is published.
    journal: Journal
    # A file descriptor that becomes readable when the run is to stop: every wait then raises InterruptedError.
    interrupt: int
    # Receives the events.
    publish: Callable[[dict[str, Any]], None]
    # Tells its workers how the host runs the cores.
    host: HostMonitor | None = None
    # Of the children of columns with a release, by label.
    _interpreters: dict[str, str] = field(default_factory=dict)
    _chip: Chip | None = field(init=False)

    def __post_init__(self) -> None:
        self._chip = telemetry.open(self.spec.accelerator)

    @property
    def threads(self) -> int:
        return choose_threads(self.spec)

    def report_wait(self, reason: str) -> None:
        """Report why the device waits."""
        self._report("stage", text=f"{self.spec.place} {reason}")

    def note(self, kind: str, key: str, value: Mapping[str, Any]) -> None:
        """Write a note about the run, which is not a record, and report it."""
        self.journal.note(kind, key, value)
        self._report(kind, key=key, value=value)

    def _describe_network(self, group: Group) -> dict[str, Any]:
        return {
            "workload": group.workload.to_json(),
            "file": self.spec.world.files.get(group.workload.name, "") if self.spec.world else "",
            "factors": dict(group.factors),
            "seed": self.spec.sweep.seed,
            "artifacts": str(self.spec.state_dir / LAYOUT.artifacts),
        }

    def _start_worker(self, trial: Trial, group: Group, task: Mapping[str, Any]) -> Worker:
        source = group.workload.load_source()
        modules = list_modules(trial.column.load_compiler(), task["form"], source)
        python = self._interpreters.get(trial.compiler, group.workload.python)
        return self._fork(trial, modules, python, choose_memory(self.spec, trial.column))

    def _fork(self, trial: Trial, modules: tuple[str, ...], python: str, memory: str = KEPT) -> Worker:
        search = JournalledSearch(trial.id, self.journal)

        def report(progress: Message) -> None:
            search.record()
            self._report("tuning", text=f"tuning {trial}", trial_id=trial.id, **progress)

        try:
            child = get_servers(self.spec, memory).fork(modules, python)
        except ServerEndedError as error:
            check_disk(self.spec.state_dir)
            failure = build_failure(trial, "crashed", "build", error.reason)
            raise TrialFailedError(replace(failure, detail=error.log)) from error
        try:
            return Worker(
                trial=trial,
                child=child,
                timeout_s=self.spec.sweep.timeout_s,
                interrupt=self.interrupt,
                report=report,
                meter=Meter(self._chip, child.pid),
                host=self.host,
            )
        except ProcessLookupError as error:  # killed already
            child.end()
            raise TrialFailedError(build_failure(trial, "crashed", "build", "the child process ended")) from error

    @contextmanager
    def _run_worker(self, trial: Trial, modules: tuple[str, ...], python: str) -> Iterator[Worker]:
        worker = self._fork(trial, modules, python)
        try:
            yield worker
        finally:
            worker.end()

    def _report(self, kind: str, **fields: Any) -> None:
        self.publish({"kind": kind, "device": self.spec.device, **fields})
