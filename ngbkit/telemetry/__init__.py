"""What a chip tells of itself while it is measured: clocks, throttling, GPU memory, utilisation, power and energy.

    open(accelerator) -> Chip (NVML, or a Jetson's sysfs) -> Reading, one a look
    Meter(chip).turn() -> readings, taken on a thread while a turn goes on -> Use, over all turns

Nothing here initialises CUDA, and nothing raises into a measurement: what is not told is None.
"""

from ngbkit.telemetry.chips import lacks, open
from ngbkit.telemetry.meter import Meter
from ngbkit.telemetry.reading import Chip, Reading
from ngbkit.telemetry.use import Use

__all__ = ["Chip", "Meter", "Reading", "Use", "lacks", "open"]
