"""The program that all this is on a device: told what to do in one line of JSON, it answers with one.

The line comes on the standard input, and files may follow; the answer goes to the standard output, and what pip prints
to the standard error. Where its input ends before it has answered, its client is gone: it stops, and cleans up.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from ngbkit.cluster.deployment.onsite.folder import Refused, locate
from ngbkit.cluster.deployment.onsite.install import install, look
from ngbkit.cluster.deployment.onsite.listing import clear, hold

_VERBS = {"look": look, "install": install, "hold": hold, "clear": clear}
_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


def main() -> None:
    """Do what the line on the standard input asks for."""
    os.umask(0o077)
    for number in _SIGNALS:
        signal.signal(number, _leave)
    request = json.loads(sys.stdin.buffer.readline())
    try:
        state_dir = locate(request["state_dir"])
        os.environ.update(request["variables"])
        answer: dict[str, Any] = _VERBS[request["verb"]](state_dir, request)
    except (Refused, OSError) as error:
        answer = {"error": str(error)}
    sys.stdout.write(json.dumps(answer) + "\n")


def _leave(number: int, _frame: object) -> None:
    # Only once: what is cleaned up meanwhile is not to be interrupted.
    for other in _SIGNALS:
        signal.signal(other, signal.SIG_IGN)
    sys.exit(128 + number)
