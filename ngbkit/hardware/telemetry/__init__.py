"""Telemetry of a chip during a measurement: clocks, throttling, GPU memory, utilisation, power and energy.

    open(accelerator) -> Chip (NVML, a Jetson's sysfs, or a CPU's powercap) -> Reading, at one moment
    Meter(chip).record_turn() -> readings, on a thread during a turn -> Use, over all turns

Nothing here initialises CUDA, and nothing raises into a measurement: a value that the chip does not report is None.
"""

from ngbkit.hardware.telemetry.chips import find_problem, open
from ngbkit.hardware.telemetry.meter import Meter
from ngbkit.hardware.telemetry.reading import Chip, Reading
from ngbkit.hardware.telemetry.use import Use

__all__ = ["Chip", "Meter", "Reading", "Use", "find_problem", "open"]
