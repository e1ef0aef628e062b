"""Where a figure comes from: what it is, what it was told, and of which dataset; inside the figure itself."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import cache, wraps
from importlib import metadata
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from ngbkit.dataset import storage
from ngbkit.dataset.dataset_hash import fingerprint
from ngbkit.hardware import environment
from ngbkit.sweep.to_json import plain
from ngbkit.workloads.base import content_hash

KEY = "ngbkit"
"""The key of ``usermeta`` in a figure's specification."""

DATASETS = "NGBKIT_DATASETS"
"""The environment variable that names the folder in which the datasets of figures are kept, by their hash: that of a
publication, while its notebooks are executed."""

_Arguments = ParamSpec("_Arguments")
_Chart = TypeVar("_Chart")


def traced(figure: Callable[_Arguments, _Chart]) -> Callable[_Arguments, _Chart]:
    """A figure that tells where it comes from.

    Its specification has ``usermeta["ngbkit"]``: ``figure`` and ``arguments``, what drew it; ``dataset``, the hash of
    the data (`ngbkit.dataset.dataset_hash`); ``run_id``; ``sweep``, the hash of what was asked for; ``environments``,
    that of what it was measured on; ``measured_with`` and ``drawn_with``, versions of ngbkit, and ``commit``, where a
    checkout tells.
    """

    @wraps(figure)
    def draw(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Chart:
        chart = figure(*args, **kwargs)
        data: Any = args[0] if args else kwargs["data"]
        told = {name: value for name, value in kwargs.items() if name != "data"}
        known = about(figure.__name__, told, data)
        chart.usermeta = {KEY: known}  # type: ignore[attr-defined]
        _keep(data, known["dataset"])
        return chart

    return draw


def about(figure: str, arguments: dict[str, Any], data: Any) -> dict[str, Any]:
    """What a figure tells of itself."""
    attrs = data.attrs
    environments = json.loads(attrs.get("environments") or "{}")
    commits = sorted({one["ngbkit_commit"] for one in environments.values() if one.get("ngbkit_commit")})
    return {
        "figure": figure,
        "arguments": plain(arguments),
        "dataset": fingerprint(data),
        "run_id": attrs.get("run_id", ""),
        "sweep": content_hash(json.loads(attrs.get("sweep") or "null")),
        "environments": content_hash(environments),
        "measured_with": attrs.get("ngbkit_version", ""),
        "commit": ", ".join(commits),
        "drawn_with": metadata.version("ngbkit"),
        **({"drawn_at": _own_commit()} if _own_commit() else {}),
    }


def _keep(data: Any, digest: str) -> None:
    folder = os.environ.get(DATASETS)
    if folder and not (target := Path(folder) / f"{digest}.nc").exists():
        storage.save(data, target)


@cache
def _own_commit() -> str:
    """That of the code that was loaded: a checkout may move on beside a notebook."""
    return environment.commit()
