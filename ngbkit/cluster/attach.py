"""An engine of the user's own ipyparallel cluster, in the place of one that ngbkit would start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ngbkit.cluster.engine import Engine
from ngbkit.cluster.safe_client import GuardedClient
from ngbkit.errors import DeviceError, UsageError


def attach(cluster: Any, device: str = "cpu", *, target: int | None = None) -> Engine:
    """Use an engine that runs already.

    Parameters
    ----------
    cluster
        An ``ipyparallel.Client``, a ``Cluster``, a view of one engine, the id of a cluster of the default profile, or
        the path of a connection file (``ipcontroller-client.json``).
    device
        The label that its results are to have.
    target
        Which engine, by its number; the first one by default.

    Raises
    ------
    DeviceError
        The cluster does not answer, or has no such engine.
    """
    client = _guarded(cluster)
    targets = getattr(cluster, "targets", None)
    if isinstance(targets, int):
        target = targets
    if not client.ids:
        raise DeviceError("the cluster has no engine: start one (`ipcluster engines`), then try again.")
    if target is not None and target not in client.ids:
        raise UsageError(f"the cluster has no engine {target}; it has {', '.join(map(str, client.ids))}.")
    return Engine(device=device, view=client[client.ids[0] if target is None else target])


def _guarded(cluster: Any) -> GuardedClient:
    """A client of that cluster which takes no code from its engines."""
    import ipyparallel

    given = getattr(cluster, "client", cluster)
    if isinstance(given, GuardedClient):
        return given
    if isinstance(given, ipyparallel.Client):
        return _beside(given)
    if not isinstance(cluster, (str, Path, ipyparallel.Cluster)):
        raise UsageError(
            f"{type(cluster).__name__} is no cluster; give a Client, a Cluster, a view of one engine, an id, "
            "or a connection file."
        )
    try:
        if isinstance(cluster, (str, Path)):
            if Path(cluster).is_file():
                return GuardedClient(str(cluster))
            cluster = ipyparallel.Cluster.from_file(cluster_id=str(cluster))
        plain = cluster.connect_client_sync()
    except (OSError, TimeoutError) as error:
        raise DeviceError(
            f"the cluster {cluster} does not answer: {error}. Is it running? (`ipcluster list`)"
        ) from error
    try:
        return _beside(plain)
    finally:
        plain.close()


def _beside(client: Any) -> GuardedClient:
    """A client of the same cluster."""
    config = dict(client._config)
    # A client keeps addresses in the place of ports.
    ports = ("control", "task", "mux", "iopub", "notification", "registration", "broadcast")
    return GuardedClient({**config, **{name: int(str(config[name]).rpartition(":")[2]) for name in ports}})
