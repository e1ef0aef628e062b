"""Attaches to an engine of the user's own ipyparallel cluster, in the place of one that ngbkit would start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ngbkit.cluster.engine import Engine
from ngbkit.cluster.safe_client import GuardedClient
from ngbkit.errors import DeviceError, UsageError
from ngbkit.user_text import parse_path


def attach(cluster: Any, device: str = "cpu", *, target: int | None = None) -> Engine:
    """Use a running engine.

    Parameters
    ----------
    cluster
        An ``ipyparallel.Client``, a ``Cluster``, a view of one engine, the id of a cluster of the default profile, or
        the path of a connection file (``ipcontroller-client.json``).
    device
        The device label of its results.
    target
        The number of the engine. Default: the first one.

    Returns
    -------
    Engine
        For the `engines` of a sweep's `start` and `run`; ngbkit never ends it.

    Raises
    ------
    DeviceError
        The cluster does not answer, or has no engine.
    UsageError
        Not a cluster, or one without that engine.
    """
    client = _connect(cluster)
    targets = getattr(cluster, "targets", None)
    if isinstance(targets, int):
        target = targets
    if not client.ids:
        raise DeviceError("the cluster has no engine: start one (`ipcluster engines`), then try again.")
    if target is not None and target not in client.ids:
        raise UsageError(f"no engine {target} in the cluster; expected one of {', '.join(map(str, client.ids))}.")
    return Engine(device=device, view=client[client.ids[0] if target is None else target])


def _connect(cluster: Any) -> GuardedClient:
    """Connect a client that runs no code from the cluster's engines."""
    import ipyparallel

    client = getattr(cluster, "client", cluster)
    if isinstance(client, GuardedClient):
        return client
    if isinstance(client, ipyparallel.Client):
        return _clone(client)
    if not isinstance(cluster, (str, Path, ipyparallel.Cluster)):
        raise UsageError(
            f"invalid cluster: got a {type(cluster).__name__}; expected a Client, a Cluster, a view of one engine, an "
            "id, or a connection file."
        )
    try:
        if isinstance(cluster, (str, Path)):
            if parse_path(cluster).is_file():
                return GuardedClient(str(cluster))
            cluster = ipyparallel.Cluster.from_file(cluster_id=str(cluster))
        client = cluster.connect_client_sync()
    except (OSError, TimeoutError) as error:
        raise DeviceError(
            f"the cluster {cluster} does not answer: {error}. Is it running? (`ipcluster list`)"
        ) from error
    try:
        return _clone(client)
    finally:
        client.close()


def _clone(client: Any) -> GuardedClient:
    """Connect another client to the same cluster."""
    config = dict(client._config)
    # A client replaces the ports by addresses.
    ports = ("control", "task", "mux", "iopub", "notification", "registration", "broadcast")
    return GuardedClient({**config, **{name: int(str(config[name]).rpartition(":")[2]) for name in ports}})
