# PYTHON_ARGCOMPLETE_OK
"""``python -m ngbkit``: the command line."""

import os
import sys

if sys.path[0] == os.getcwd():  # noqa: PTH109  files there must hide no module, and pathlib is one
    sys.path.append(sys.path.pop(0))
try:
    from ngbkit.cli import main
except ImportError as error:
    if error.name != "ngbkit":
        raise
    sys.exit(f"ngbkit: {error}.")

if __name__ == "__main__":
    sys.exit(main())
