"""Networks built from their descriptions, with the values that a user gives to their inputs."""

from __future__ import annotations

from dataclasses import replace

from ngbkit.workloads import values
from ngbkit.workloads.base import Factors, Network, Workload


def build(workload: Workload, factors: Factors) -> Network:
    """Build the network of a workload at these factors, with given values; WorkloadError if that fails."""
    network = workload.load_source().build(workload, factors)
    specs = {spec.name: spec for spec in network.inputs}
    arrays = values.read_given(workload, network.inputs)
    checked = {name: values.check_value(specs[name], array, workload.name) for name, array in arrays.items()}
    return replace(network, examples={**network.examples, **checked})
