"""What a user should know before a sweep is measured: how long it takes, and what will be missing from its results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ngbkit import registry
from ngbkit.sweep.description import NO_BATCH, has_batch
from ngbkit.sweep.trials import BASELINE, Choice

if TYPE_CHECKING:
    from ngbkit.compilers.base import Compiler
    from ngbkit.sweep.grid import Grid


def list_notices(sweep: Grid, *, with_time: bool = True) -> list[str]:
    """List the number of trials with their expected time, and what is known to be missing, a line each."""
    from ngbkit.predictor.forecast import expected

    times = [expected.describe(sweep, expected.estimate_seconds(sweep))] if with_time else []
    return [*times, *_list_calls(sweep), *_warn_of_baseline(sweep), *_warn_of_missing_compilers(sweep)]


def _list_calls(sweep: Grid) -> Iterator[str]:
    """Yield a notice for each network without a batch, where its description has its inputs."""
    for workload in sweep.workloads:
        if workload.inputs and not has_batch(workload.inputs):
            yield f"{workload.name}: {NO_BATCH}"


def _warn_of_baseline(sweep: Grid) -> Iterator[str]:
    """Warn of a comparison without the compiler that ratios are over."""
    names = [Choice.parse(label).compiler for label in sweep.compilers]
    if BASELINE not in names and len(names) > 1:
        yield f"no speed-ups: {BASELINE}, which they are over, is not among the compilers; add it: -c {BASELINE},…"


def _warn_of_missing_compilers(sweep: Grid) -> Iterator[str]:
    """Warn of compilers that are not installed, where that is known without asking another machine."""
    from ngbkit.cluster import devices

    configured = devices.load()
    local = [label for label in sweep.devices if label in configured and configured[label].shares_packages]
    for name in dict.fromkeys(Choice.parse(label).compiler for label in sweep.compilers):
        compiler: Compiler = registry.load(registry.COMPILERS, name)
        if local and (missing := compiler.missing()):
            yield (
                f"no result of {name} on {', '.join(local)}: {', '.join(missing)} not installed; install with: "
                f"{compiler.install}"
            )
