"""Examples as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ngbkit.predict.labels.example_set import Examples

if TYPE_CHECKING:
    import pandas as pd


def to_frame(examples: Examples) -> pd.DataFrame:
    """The examples, one row per network.

    Returns
    -------
    pandas.DataFrame
        ``name``, ``family``, ``parent``, ``rule`` (empty for an original) and, for each runtime, the median latency in
        seconds: NaN where there is none. A runtime is named by its compiler, and by its device where there are several.
    """
    import pandas as pd

    labels = {"name": examples.names, "family": examples.families, "parent": examples.parents, "rule": examples.rules}
    seconds = dict(zip(name_runtimes(examples), examples.seconds.T, strict=True))
    return pd.DataFrame({**{name: list(values) for name, values in labels.items()}, **seconds})


def name_runtimes(examples: Examples) -> list[str]:
    """Return the name of each runtime: its compiler, and its device where there are several."""
    devices = {device for device, _ in examples.runtimes}
    return [compiler if len(devices) == 1 else f"{compiler} on {device}" for device, compiler in examples.runtimes]
