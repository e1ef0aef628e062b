"""Measures the time of `ngbkit publish` for the notebooks of this checkout, and the size of their site.

It builds the site in a temporary folder, from nothing and again without changes, and prints both times and the size
beside the targets. Nothing is measured: sweeps are replayed from their recordings.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from ngbkit.publish import publish

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
#: The limits of a build from nothing, of a build without changes (seconds), and of the site (MB).
MOST_S, MOST_AGAIN_S, MOST_MB = 900.0, 10.0, 30.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    with TemporaryDirectory(prefix="ngbkit-site-") as folder:
        times = []
        for _ in range(2):
            began = time.perf_counter()
            site = publish(NOTEBOOKS, Path(folder) / "site", report=lambda line: print(line, flush=True))
            times.append(time.perf_counter() - began)
    print(f"\n{site.figures} figures")
    print(f"from nothing      {times[0]:7.1f} s   (target: at most {MOST_S:g})")
    print(f"nothing changed   {times[1]:7.1f} s   (target: at most {MOST_AGAIN_S:g})")
    print(f"size              {site.bytes / 1e6:7.1f} MB  (target: at most {MOST_MB:g})")


if __name__ == "__main__":
    main()
