"""The process of a simplifier: ``python -m ngbkit.predict.optimizer.simplifiers.child NAME SOURCE TARGET``."""

from __future__ import annotations

import sys
from pathlib import Path

from ngbkit import registry
from ngbkit.device.process_lifetime import end_with_parent


def main() -> None:
    """Simplify one file."""
    end_with_parent()
    name, source, target = sys.argv[1:]
    registry.load(registry.SIMPLIFIERS, name).simplify(Path(source), Path(target))


if __name__ == "__main__":
    main()
