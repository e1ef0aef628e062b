"""The parts of a sweep and their names: a trial, and the trials that are compared with each other."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ngbkit.sweep.column import Column
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
