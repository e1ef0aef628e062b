"""A plugin of ngbkit: the networks of `generated`, which engines build by its entry point."""

from __future__ import annotations

from ngbkit.workloads.base import Factors, Network, Source, Workload


def build(workload: Workload, factors: Factors) -> Network:
    """Build a network; torch is imported only for it."""
    import generated

    return generated.build(workload.spec)


SOURCE = Source(
    name="layers",
    summary="generated networks",
    build=build,
    # No word names a generated network.
    parse=lambda text: None,
    complete=lambda prefix: iter(()),
)
