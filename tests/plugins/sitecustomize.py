"""Short warm-ups in the processes that tests start: no test judges a latency, and each trial would call for 0.2 s."""

import sys

if "ngbkit.device.isolation.forkserver" in sys.orig_argv:
    from ngbkit.device.timing import warming

    warming.WINDOW_S = 0.01
