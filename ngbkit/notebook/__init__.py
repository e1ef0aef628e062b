"""The notebook's side: magics.py says what can be asked, completion.py what Tab offers, display.py what is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


def load(shell: InteractiveShell) -> None:
    """Give a shell the magics, their completion, and the drawing of live runs."""
    from ngbkit.notebook import completion, display, magics

    magics.register(shell)
    completion.register(shell)
    display.register(shell)


def unload(shell: InteractiveShell) -> None:
    """Take from a shell what `load` gave it."""
    from ngbkit.notebook import completion, display, magics

    display.unregister(shell)
    completion.unregister(shell)
    magics.unregister(shell)
