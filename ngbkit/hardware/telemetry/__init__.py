"""What a chip tells of itself while it is measured: clocks, throttling, GPU memory, utilisation, power and energy.

    open(accelerator) -> Chip (NVML, or a Jetson's sysfs) -> Reading, one a look
    Meter(chip).turn() -> readings, taken on a thread while a turn goes on -> Use, over all turns

Nothing here initialises CUDA, and nothing raises into a measurement: what is not told is None.
"""

from ngbkit.hardware.telemetry.chips import lacks, open
from ngbkit.hardware.telemetry.meter import Meter
from ngbkit.hardware.telemetry.reading import Chip, Reading
from ngbkit.hardware.telemetry.use import Use

__all__ = ["Chip", "Meter", "Reading", "Use", "lacks", "open"]
