"""A library that tuning made: from what is kept of it, from a search that goes on where the last one ended, or both."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from ngbkit.compilers.base import Progress, Tuning
from ngbkit.compilers.tvm_relax import library, lowering, records, targets
from ngbkit.compilers.tvm_relax.forked import Ended, Forked, Line
from ngbkit.compilers.tvm_relax.library import Library
from ngbkit.compilers.tvm_relax.network import Network
from ngbkit.compilers.tvm_relax.search import Limits, Search
from ngbkit.compilers.tvm_relax.store import Store
from ngbkit.compilers.tvm_relax.tasks import Tasks
from ngbkit.errors import UnsupportedError

# A function at which the search has crashed so often is left as it is.
_CRASHES = 2
# The search says something at least this often, whatever it is at.
_SILENT_S = 300.0
_REPEAT_S = 5.0
_NOTE_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """A library, and what tuning has to say of it.

    Parameters
    ----------
    library
        Ready on its device.
    facts
        As plain JSON.
    candidates
        How many were tried.
    reused_s
        Seconds of earlier work that it is made of.
    """

    library: Library
    facts: Mapping[str, Any]
    candidates: int
    reused_s: float


@dataclass(slots=True)
class Teller:
    """Passes on how far a search is, and says it again now and then while nothing new is known.

    Parameters
    ----------
    report
        Who is told.
    """

    report: Callable[[Progress], None]
    _last: Progress = field(default_factory=lambda: Progress(done=0, total=0))
    _at: float = field(default_factory=time.monotonic)

    def tell(self, progress: Progress) -> None:
        """Pass that on."""
        self._last, self._at = progress, time.monotonic()
        self.report(progress)

    def repeat(self) -> None:
        """Say it again if that was long ago."""
        if time.monotonic() - self._at >= _REPEAT_S:
            self.tell(self._last)


@dataclass(slots=True, kw_only=True)
class Workshop:
    """What makes a tuned library of a network.

    Parameters
    ----------
    network
        What to compile.
    target, accelerator, threads
        For what.
    store
        Where it is kept, by the options that say how long to tune.
    tuning
        What the sweep allows, and who is told how far it is.
    """

    network: Network
    target: Any
    accelerator: str
    threads: int
    store: Store
    tuning: Tuning
    _teller: Teller = field(init=False)
    _noted_at: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self._teller = Teller(self.tuning.report)

    def make(self) -> Tuned:
        """The library: the one that is kept where it is finished, else one of a search that goes on.

        Raises
        ------
        UnsupportedError
            The installed packages cannot tune, or nothing was tried and the sweep allows nothing more.
        """
        with self.store.held(self._teller.repeat):
            facts = library.read_facts(self.store.library)
            if facts and (facts["complete"] or not self._may_search()):
                kept = library.load(self.store.library, targets.find_device(self.accelerator))
                return _finish(kept, "hit", facts["tuning_s"] + facts["build_s"])
            targets.check_tuning(self.store.subject.versions)
            self._begin()
            before_s = _spent(self.store)
            module = lowering.fuse_for_tuning(self.network.import_relax(), self.target)
            complete = self._complete(module)
            if not records.read(self.store.records):
                raise UnsupportedError(
                    "nothing was tuned: the sweep's tuning budget was spent before this network's turn; "
                    "give the sweep more, or run it again"
                )
            return _finish(self._build(module, complete), "miss", before_s)

    def _complete(self, module: Any) -> bool:
        """Search for as long as the options and the sweep allow; whether nothing is left to be done."""
        if self.store.meta().get("complete"):
            return True  # the records came without their library
        return self._may_search() and not self._search(module)

    def _begin(self) -> None:
        """Take over the records of a smaller budget where there are none yet, and mend what was left unfinished."""
        smaller = self.store.smaller()
        if not self.store.records.exists() and smaller is not None:
            draft = self.store.records.with_suffix(".draft")
            shutil.copyfile(smaller, draft)
            draft.replace(self.store.records)
        records.mend(self.store.records)
        if not self.store.meta():
            self._note()

    def _note(self) -> None:
        """Say in the folder how far it is, for whoever looks while the search runs, or after it was killed."""
        found = records.read(self.store.records)
        self.store.note({"candidates": len(found), "tuning_s": _spent(self.store), "complete": False})

    def _may_search(self) -> bool:
        tuning = self.tuning
        return (tuning.seconds is None or tuning.seconds > 0) and (tuning.candidates is None or tuning.candidates > 0)

    def _build(self, module: Any, complete: bool) -> Library:
        began = time.monotonic()
        tasks = Tasks(module, self.target, self.threads)
        tasks.recall(records.read(self.store.records))
        lowered = lowering.generate_code(lowering.apply_schedules(module, self.target, tasks.database), self.target)
        facts = {
            **tasks.summary(int(self.store.subject.budget["early_stop"])),
            "tuning_s": _spent(self.store),
            "build_s": time.monotonic() - began,
            "complete": complete,
        }
        device = targets.find_device(self.accelerator)
        kept = library.keep(lowered, self.store.library, facts)
        self.store.note(facts)
        return library.load(self.store.library, device) if kept else library.take(lowered, facts, device)

    def _search(self, module: Any) -> bool:
        """Search in a process of its own, and again where it crashed; whether the sweep's budget cut it short."""
        began, first = time.monotonic(), len(records.read(self.store.records))
        crashes: dict[str, int] = {}
        while True:
            done = len(records.read(self.store.records)) - first
            limits = self._limits(done, time.monotonic() - began)
            given_up = {digest for digest, count in crashes.items() if count >= _CRASHES}
            process = Forked(partial(self._work, module, limits, given_up))
            at = ""
            try:
                while True:
                    said = process.hear(time.monotonic() + _SILENT_S)
                    if "error" in said:
                        raise RuntimeError(f"tuning failed: {said['error']}")
                    if "cut_short" in said:
                        return bool(said["cut_short"])
                    if "at" in said:
                        at = said["at"]
                    if "progress" in said:
                        self._hear(Progress(**said["progress"]))
            except Ended as ended:
                crashes[at] = crashes.get(at, 0) + 1
                if not at and crashes[at] > _CRASHES:
                    raise RuntimeError(f"the search for schedules crashed before it had begun: {ended}") from None
            finally:
                process.close()

    def _work(self, module: Any, limits: Limits, given_up: Collection[str], line: Line) -> Any:
        """What the process of a search does."""
        before_s = _spent(self.store)
        tasks = Tasks(module, self.target, self.threads)
        tasks.recall(records.read(self.store.records))
        line.tell({"progress": asdict(Progress(done=tasks.tried, total=max(tasks.tried, 1)))})
        tasks.teach()
        teller = Teller(lambda progress: line.tell({"progress": asdict(progress)}))
        search = Search(
            functions=[one for one in tasks.functions if one.digest not in given_up],
            store=self.store,
            target=self.target,
            database=tasks.database,
            model=tasks.model,
            bench=tasks.bench(lambda: targets.find_device(self.accelerator), teller.repeat),
            limits=limits,
            report=teller.tell,
            before_s=before_s,
            announce=lambda digest: line.tell({"at": digest}),
        )
        return {"cut_short": search.go()}

    def _hear(self, progress: Progress) -> None:
        self._teller.tell(progress)
        if time.monotonic() - self._noted_at >= _NOTE_S:
            self._noted_at = time.monotonic()
            self._note()

    def _limits(self, done: int, gone_s: float) -> Limits:
        budget, tuning = self.store.subject.budget, self.tuning
        return Limits(
            trials=budget["trials"] or math.inf,
            early_stop=int(budget["early_stop"]),
            total=budget["total"] or math.inf,
            tuning_s=budget["seconds"] or math.inf,
            candidates=math.inf if tuning.candidates is None else max(0, tuning.candidates - done),
            seconds=math.inf if tuning.seconds is None else max(0.0, tuning.seconds - gone_s),
        )


def _finish(made: Library, cache: str, reused_s: float) -> Tuned:
    return Tuned(
        library=made, facts={**made.facts, "cache": cache}, candidates=made.facts["candidates"], reused_s=reused_s
    )


def _spent(store: Store) -> float:
    """How many seconds all tuning that is on record has taken."""
    found = records.read(store.records)
    return found[-1].spent_s if found else 0.0
