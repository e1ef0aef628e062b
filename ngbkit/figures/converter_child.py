"""Converts charts and pictures for another process, until its standard input ends: vl-convert aborts on some of them.

A request is a line of JSON, ``[method, argument, options]``; an answer is its kind (``s`` a text, ``b`` bytes, ``e`` an
error), the number of its bytes in eight, and these. It imports nothing of ngbkit, whose package would double the time
that it takes to start.
"""

from __future__ import annotations

import json
import resource
import sys

import vl_convert


def main() -> None:
    """Answer requests."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin.buffer:
        method, argument, options = json.loads(line)
        try:
            result = getattr(vl_convert, method)(argument, **options)
            kind, content = (b"s", result.encode()) if isinstance(result, str) else (b"b", bytes(result))
        except Exception as error:  # noqa: BLE001  vl-convert raises anything about a chart
            kind, content = b"e", " ".join(str(error).split())[:300].encode(errors="replace")
        sys.stdout.buffer.write(kind + len(content).to_bytes(8, "big") + content)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
