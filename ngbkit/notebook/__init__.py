"""The notebook: magics, their completion, what cells display, and panels.

magics.py       carries out the command of a line, and displays its answer
completion.py   completes the options and values of a magic with Tab
modules.py      turns a torch module of the notebook into a workload
display.py      displays runs
objects.py      displays sweeps, datasets, metrics and figures
preload.py      starts the engine before the first run
panels/         forms that compose a line of a magic, run it, and explore its dataset
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


def load(shell: InteractiveShell) -> None:
    """Register the magics, their completion and all displays with a shell, and start its engine."""
    from ngbkit.notebook import completion, display, magics, objects, preload

    magics.register(shell)
    completion.register(shell)
    display.register(shell)
    objects.register(shell)
    preload.begin(shell)


def unload(shell: InteractiveShell) -> None:
    """Remove from a shell all that `load` registered."""
    from ngbkit.notebook import completion, display, magics, objects

    objects.unregister(shell)
    display.unregister(shell)
    completion.unregister(shell)
    magics.unregister(shell)
