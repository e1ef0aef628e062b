"""The files of a dataset that readers download: netCDF, a table as CSV, and its sweep and environments as JSON."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from ngbkit.dataset import storage
from ngbkit.dataset.storage import Data
from ngbkit.errors import UsageError
from ngbkit.metrics import frames
from ngbkit.sweep.json_values import to_json_value


def write_dataset(file: Path, target: Path) -> None:
    """Write the files of a dataset beside `target`, which is the netCDF file, if it is new."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_file():
        return
    data = storage.load(file)
    target.with_suffix(".json").write_text(json.dumps(describe(data), indent=1))
    target.with_suffix(".csv").write_text(to_csv(data))
    shutil.copyfile(file, target)


def describe(data: Data) -> dict[str, Any]:
    """Describe the sweep and the environments of a dataset, its run and its date, as plain JSON."""
    metadata = {name: json.loads(data.attrs.get(name) or "null") for name in ("sweep", "environments")}
    metadata |= {name: data.attrs[name] for name in ("run_id", "ngbkit_version", "created") if name in data.attrs}
    plain: dict[str, Any] = to_json_value(metadata)
    return plain


def to_csv(data: Data) -> str:
    """Format the trials of a dataset as CSV, or all of its variables if it has no samples."""
    from ngbkit.dataset.assembly import nodes

    if all("latency" in node and "contract" in node for node in nodes(data).values()):
        try:
            return str(frames.to_dataframe(data).to_csv(index=False))
        except UsageError:
            pass
    tables = [node.to_dataframe().reset_index() for node in nodes(data).values()]
    return "\n".join(str(frame.to_csv(index=False)) for frame in tables)
