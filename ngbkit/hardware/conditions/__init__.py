"""What a measurement is made under: looked at before, warned of in plain sentences, and watched during each turn."""

from ngbkit.hardware.conditions.interference import Interference, Watch
from ngbkit.hardware.conditions.machine import look, warnings

__all__ = ["Interference", "Watch", "look", "warnings"]
