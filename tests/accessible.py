"""What axe-core finds in a page that people with a screen reader or a keyboard cannot use."""

from __future__ import annotations

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

_SERIOUS = ("serious", "critical")


def find_violations(page: Page, selector: str) -> list[str]:
    """Find the serious and critical violations within an element, each as ``"rule: selector"``."""
    violations = Axe().run(page, context=selector).response["violations"]
    return [
        f"{violation['id']}: {' '.join(map(str, node['target']))}"
        for violation in violations
        for node in violation["nodes"]
        if node["impact"] in _SERIOUS
    ]
