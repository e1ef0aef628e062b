"""The outputs of cells, as HTML that is the same in every build."""

from __future__ import annotations

import re
from typing import Any
from uuid import NAMESPACE_URL, uuid5

_HTML = "text/html"
_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_ID = re.compile(rf"""\bid=["'][^"']*?({_UUID})""")


def stabilise(output: dict[str, Any], page: str) -> None:
    """Replace the random ids of an output's elements, such as those of xarray, by ids that follow from its page."""
    html = output.get("data", {}).get(_HTML)
    if html is None:
        return
    text = "".join(html)
    for number, identifier in enumerate(dict.fromkeys(_ID.findall(text))):
        text = text.replace(identifier, str(uuid5(NAMESPACE_URL, f"{page}#{number}")))
    output["data"][_HTML] = text
