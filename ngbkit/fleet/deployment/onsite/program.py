"""The main program on a device: it reads a request as one line of JSON and answers with one.

The request arrives on the standard input, where files may follow; the answer goes to the standard output, and pip's
output to the standard error. If the input ends before the answer, the client is gone: the program cleans up and stops.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from ngbkit.fleet.deployment.onsite.folder import Refused, clear, list_contents, locate
from ngbkit.fleet.deployment.onsite.install import describe_machine, install

_VERBS = {"look": describe_machine, "install": install, "hold": list_contents, "clear": clear}
_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


def main() -> None:
    """Run the verb of the request on the standard input."""
    os.umask(0o077)
    for number in _SIGNALS:
        signal.signal(number, _exit)
    request = json.loads(sys.stdin.buffer.readline())
    try:
        state_dir = locate(request["state_dir"])
        os.environ.update(request["variables"])
        answer: dict[str, Any] = _VERBS[request["verb"]](state_dir, request)
    except (Refused, OSError) as error:
        answer = {"error": str(error)}
    sys.stdout.write(json.dumps(answer) + "\n")


def _exit(number: int, _frame: object) -> None:
    # Only once: a second signal must not interrupt the cleanup.
    for other in _SIGNALS:
        signal.signal(other, signal.SIG_IGN)
    sys.exit(128 + number)
