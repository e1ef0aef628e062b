"""The trials that a grid stands for, and their names: groups, with their anchors and ties, and bundles of groups."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

from ngbkit.sweep.column import BASELINE, Column
from ngbkit.user_text import format_network
from ngbkit.workloads.base import FactorValue, Workload

ANCHOR = "anchor-"
"""The beginning of the id of an anchor: see `Trial`."""

# A quoted text without its end reaches to the end, so that no text is read twice.
_MARKS = re.compile(r'[{},]|"(?:[^"\\]|\\.)*"?', re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One (workload, factors, compiler with its options, device, batch size).

    An anchor is the baseline at batch size 1, measured once more `beside` the compilers of a group of another batch
    size, so that what was measured at different times can be tied together. It is no trial of the sweep's own: its id
    begins with ``anchor-``, it is never pending, and the sweep goes on without it where it fails. A tie is an anchor
    that was `tied` to a group, by the id of that group's first trial: the baseline of the first network, at the group's
    own batch size.
    """

    workload: str
    workload_id: str
    factors: tuple[tuple[str, FactorValue], ...]
    compiler: str
    device: str
    batch_size: int
    beside: int = 0
    tied: str = ""

    @property
    def column(self) -> Column:
        """The record of the label `compiler`."""
        return Column.read(self.compiler)

    @property
    def id(self) -> str:
        """A content hash of all that identifies the trial."""
        where = (self.workload, self.workload_id, self.factors, self.compiler, self.device, self.batch_size)
        text = "\0".join(map(str, where))
        if not self.beside:
            return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
        place = f"{self.beside}\0{self.tied}" if self.tied else str(self.beside)
        return ANCHOR + hashlib.blake2b(f"{text}\0{place}".encode(), digest_size=12).hexdigest()

    def __str__(self) -> str:
        network = format_network(self.workload, dict(self.factors))
        return f"{network} batch {self.batch_size} {self.compiler} on {self.device}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The trials of one (workload, factors, device, batch size), measured against each other, and their anchors.

    The `anchor` ties batch sizes; the `tie` is used where networks were to take turns and did not.
    """

    workload: Workload
    factors: Mapping[str, FactorValue]
    device: str
    batch_size: int
    trials: tuple[Trial, ...]
    anchor: Trial | None = None
    tie: Trial | None = None

    @property
    def anchors(self) -> tuple[Trial, ...]:
        """The anchors that may have been measured beside the trials."""
        return tuple(anchor for anchor in (self.anchor, self.tie) if anchor is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """Groups of one device and batch size whose trials take turns in the same rounds."""

    groups: tuple[Group, ...]

    @property
    def trials(self) -> tuple[Trial, ...]:
        """The trials of all groups, without anchors."""
        return tuple(trial for group in self.groups for trial in group.trials)


def expand_groups(
    workloads: Sequence[Workload], compilers: Sequence[str], batch_sizes: Sequence[int], device: str
) -> Iterator[Group]:
    """Yield the groups of a device by network, factors and batch size, one at a time."""
    has_baseline = BASELINE in compilers
    firsts: dict[int, Trial] = {}
    for workload in workloads:
        workload_id = workload.id
        for values in product(*workload.factors.values()):
            factors = tuple(zip(workload.factors, values, strict=True))
            trial = partial(Trial, workload=workload.name, workload_id=workload_id, factors=factors, device=device)
            for batch_size in batch_sizes:
                trials = tuple(trial(compiler=label, batch_size=batch_size) for label in compilers)
                anchored = batch_size != 1 and 1 in batch_sizes and has_baseline
                first = firsts.setdefault(batch_size, trial(compiler=BASELINE, batch_size=batch_size))
                is_first = (first.workload, first.factors) == (workload.name, factors)
                tie = None if is_first else replace(first, beside=batch_size, tied=trials[0].id)
                yield Group(
                    workload=workload,
                    factors=dict(factors),
                    device=device,
                    batch_size=batch_size,
                    trials=trials,
                    anchor=trial(compiler=BASELINE, batch_size=1, beside=batch_size) if anchored else None,
                    tie=tie if has_baseline else None,
                )


def bundle_groups(groups: Iterable[Group], together: bool) -> Iterator[Bundle]:
    """Yield groups in the order in which they are measured, with those that take turns together in one bundle."""
    if not together:
        yield from (Bundle(groups=(group,)) for group in groups)
        return
    by_size: dict[int, list[Group]] = {}
    for group in groups:
        by_size.setdefault(group.batch_size, []).append(group)
    yield from (Bundle(groups=tuple(groups)) for groups in by_size.values())


def list_references(groups: Iterable[Group], measured: Collection[str], done: Collection[str]) -> set[str]:
    """List the measured baselines and anchors of groups with other trials to do: a ratio needs both in one round."""
    listed: set[str] = set()
    for group in groups:
        baseline = group.trials[0]
        is_open = any(trial.id not in done for trial in group.trials)
        if is_open and baseline.compiler == BASELINE and baseline.id in measured:
            anchors = [group.anchor.id] if group.anchor is not None else []
            listed |= {name for name in (baseline.id, *anchors) if name in measured}
    return listed


def facts_key(workload: str, factors: Mapping[str, Any]) -> str:
    """Under which key a run keeps the facts of a workload at one value of each factor."""
    return json.dumps([workload, dict(factors)], sort_keys=True)


def split_labels(text: str) -> list[str]:
    """The labels in ``'identity,openvino{"hint":"throughput"}'``; a comma inside braces or quotes separates nothing."""
    labels, start, depth = [], 0, 0
    for mark in _MARKS.finditer(text):
        if mark[0] == "{":
            depth += 1
        elif mark[0] == "}":
            depth = max(0, depth - 1)
        elif mark[0] == "," and not depth:
            labels.append(text[start : mark.start()])
            start = mark.end()
    return [label.strip() for label in (*labels, text[start:]) if label.strip()]
