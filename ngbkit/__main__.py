# PYTHON_ARGCOMPLETE_OK
"""``python -m ngbkit``: the command line."""

import sys

from ngbkit.cli import main

if __name__ == "__main__":
    sys.exit(main())
