# PYTHON_ARGCOMPLETE_OK
"""``python -m ngbkit``: the command line."""

import sys

try:
    from ngbkit.cli import main
except ImportError as error:
    if error.name != "ngbkit":
        raise
    sys.exit(f"ngbkit: {error}.")

if __name__ == "__main__":
    sys.exit(main())
