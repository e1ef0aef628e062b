"""The trials that a grid stands for: groups, with their anchors and ties, and bundles of groups."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

from ngbkit.sweep.column import BASELINE
from ngbkit.sweep.trials import Bundle, Group, Trial
from ngbkit.workloads.base import Workload


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
