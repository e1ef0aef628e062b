"""The notebook's side: magics.py says what can be asked, modules.py makes workloads of the notebook's own modules,
completion.py says what Tab offers, display.py what is drawn of runs and lists, objects.py of sweeps and datasets, and
charts.py how figures are; panels are forms in the place of lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


def load(shell: InteractiveShell) -> None:
    """Give a shell the magics, their completion, and the drawing of live runs and of charts."""
    from ngbkit.notebook import charts, completion, display, magics, objects

    magics.register(shell)
    completion.register(shell)
    display.register(shell)
    charts.register(shell)
    objects.register(shell)


def unload(shell: InteractiveShell) -> None:
    """Take from a shell what `load` gave it."""
    from ngbkit.notebook import charts, completion, display, magics, objects

    objects.unregister(shell)
    charts.unregister(shell)
    display.unregister(shell)
    completion.unregister(shell)
    magics.unregister(shell)
