"""ipyparallel of the user's own: attaches to engines of such a cluster, and connects a plain client to an engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ngbkit import options
from ngbkit.cluster import engines
from ngbkit.cluster.engine import Engine
from ngbkit.cluster.safe_client import GuardedClient
from ngbkit.errors import DeviceError, UsageError
from ngbkit.user_text import parse_json, parse_path

_PORTS = ("control", "task", "mux", "iopub", "notification", "registration", "broadcast")
Client = TypeVar("Client")


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
    client, numbers = _list_engines(cluster)
    if target is None and len(numbers) != 1 and _is_view(cluster):
        raise UsageError(
            f"invalid cluster: got a view of {len(numbers)} engines; expected one engine. Name a view of one, such as "
            f"rc[{client.ids[0]}], or attach each engine of the client to a device of its own by `target`."
        )
    if target is not None and target not in numbers:
        raise UsageError(f"no engine {target} in the cluster; expected one of {', '.join(map(str, numbers))}.")
    return Engine(device=device, view=client[numbers[0] if target is None else target])


def attach_each(cluster: Any, devices: Sequence[str]) -> dict[str, Engine]:
    """Use a running engine for each device, in the order of the engines; UsageError if there are too few."""
    client, numbers = _list_engines(cluster)
    if len(numbers) < len(devices):
        name = cluster if isinstance(cluster, (str, Path)) else f"({type(cluster).__name__})"
        raise UsageError(
            f"invalid cluster {name}: got {len(numbers)} engine(s) for {len(devices)} devices; expected one for "
            "each. Start more (`ipcluster engines`), or name fewer devices."
        )
    return {
        device: Engine(device=device, view=client[number]) for device, number in zip(devices, numbers, strict=False)
    }


def client(device: str | None = None) -> Any:
    """Connect an ipyparallel client to the engine of a device, and bind ``%px`` and ``%%px`` to that device in IPython.

    ngbkit's own clients accept nothing but text from an engine. This one is ipyparallel's: it unpickles what the device
    sends, so the device can run code here. Connect it only to a device that you trust.

    Parameters
    ----------
    device
        The label of the device, whose engine is started if it does not run. Default: the option `device`.

    Returns
    -------
    ipyparallel.Client
        Devices of this machine share a controller, as do those of a group (`trust`), so the client of one lists the
        engines of all that run. The engine answers between runs, not during one.

    Raises
    ------
    UnknownNameError, DeviceError
        The device is unknown, or its engine does not start.

    Examples
    --------
    >>> import ngbkit
    >>> rc = ngbkit.client("orin")  # doctest: +SKIP
    """
    import ipyparallel
    from IPython import get_ipython

    engine = engines.acquire(device or options.get_device())
    connected = clone(engine.view.client, ipyparallel.Client)
    if get_ipython() is not None:
        connected.activate(engine.view.targets)
    return connected


def clone(client: Any, connect: Callable[..., Client]) -> Client:
    """Connect another client to the same cluster."""
    config = dict(client._config)
    # A client replaces the ports by addresses.
    return connect({**config, **{name: int(str(config[name]).rpartition(":")[2]) for name in _PORTS}})


def _list_engines(cluster: Any) -> tuple[GuardedClient, list[int]]:
    """Connect to a cluster; return the client and the numbers of its engines, or of a view's."""
    client = _connect(cluster)
    if not client.ids:
        if client is not getattr(cluster, "client", cluster):
            client.close()  # it is ours, and whoever waits for engines asks again and again
        raise DeviceError("the cluster has no engine: start one (`ipcluster engines`), then try again.")
    targets = cluster.targets if _is_view(cluster) else None
    if targets is None or targets == "all":
        return client, list(client.ids)
    numbers = [targets] if isinstance(targets, int) else list(targets)
    if lost := sorted(set(numbers) - set(client.ids)):
        raise DeviceError(f"the cluster has no engine {lost[0]} any more; it has {', '.join(map(str, client.ids))}.")
    return client, numbers


def _is_view(cluster: Any) -> bool:
    from ipyparallel.client.view import View

    return isinstance(cluster, View)


def _connect(cluster: Any) -> GuardedClient:
    """Connect a client that runs no code from the cluster's engines."""
    import ipyparallel

    client = getattr(cluster, "client", cluster)
    if isinstance(client, GuardedClient):
        return client
    if not isinstance(client, (str, Path, ipyparallel.Client, ipyparallel.Cluster)):
        raise UsageError(
            f"invalid cluster: got a {type(cluster).__name__}; expected a Client, a Cluster, a view of one engine, an "
            "id, or a connection file."
        )
    try:
        if isinstance(client, ipyparallel.Client):
            return clone(client, GuardedClient)
        if isinstance(cluster, (str, Path)):
            file = parse_path(cluster)
            if file.is_file():
                _check_connection_file(file)
                return GuardedClient(str(file))
            cluster = ipyparallel.Cluster.from_file(cluster_id=str(cluster))
        # `Cluster.connect_client_sync` would connect a client that binds ``%px``.
        return GuardedClient(profile_dir=cluster.profile_dir, cluster_id=cluster.cluster_id)
    except (OSError, TimeoutError) as error:
        name = cluster if isinstance(cluster, (str, Path)) else f"({type(cluster).__name__})"
        raise DeviceError(f"the cluster {name} does not answer: {error}. Is it running? (`ipcluster list`)") from error


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
