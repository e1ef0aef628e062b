"""Attaches to an engine of the user's own ipyparallel cluster, in the place of one that ngbkit would start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ngbkit.cluster.engine import Engine
from ngbkit.cluster.safe_client import GuardedClient
from ngbkit.errors import DeviceError, UsageError
from ngbkit.user_text import parse_json, parse_path

_PORTS = ("control", "task", "mux", "iopub", "notification", "registration", "broadcast")


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
            file = parse_path(cluster)
            if file.is_file():
                _check_connection_file(file)
                return GuardedClient(str(file))
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


def _check_connection_file(path: Path) -> None:
    """Check that a file is what ipyparallel's client reads; UsageError if it is not."""
    try:
        connection = parse_json(path.read_text(encoding="utf-8"))
        missing = [name for name in ("interface", "key", "task_scheme", *_PORTS) if name not in dict(connection)]
        problem = f"it lacks {', '.join(missing)}" if missing else ""
    except (UnicodeDecodeError, TypeError, ValueError) as error:
        problem = str(error)
    if problem:
        raise UsageError(
            f"invalid connection file {path}: {problem}. Name the ipcontroller-client.json of a running cluster, "
            "or its id (`ipcluster list`)."
        )


def _clone(client: Any) -> GuardedClient:
    """Connect another client to the same cluster."""
    config = dict(client._config)
    # A client replaces the ports by addresses.
    return GuardedClient({**config, **{name: int(str(config[name]).rpartition(":")[2]) for name in _PORTS}})
