"""Networks built from their descriptions, with the values that a user gives to their inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ngbkit import registry
from ngbkit.workloads import values
from ngbkit.workloads.base import Factors, Network, Source, Workload


def build(workload: Workload, factors: Factors) -> Network:
    """Build the network of a workload at these factors, with given values; WorkloadError if that fails."""
    source: Source = registry.load(registry.WORKLOADS, workload.source)
    network = source.build(workload, factors)
    if workload.values:
        arrays = values.read(workload.artifacts[workload.values])
        return _feed(network, workload.name, arrays)
    return network


def _feed(network: Network, name: str, arrays: Mapping[str, np.ndarray]) -> Network:
    """Return the network with given values for its inputs."""
    specs = {spec.name: spec for spec in network.inputs}
    matched = values.match(list(specs), arrays, name)
    checked = {key: values.check_value(specs[key], array, name) for key, array in matched.items()}
    return replace(network, examples={**network.examples, **checked})
