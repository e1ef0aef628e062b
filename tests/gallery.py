"""Takes a screenshot of every figure in JupyterLab, in its light and its dark theme, to look at after a change.

They are saved in results/gallery, which git ignores. Run ``make gallery``; it needs chromium.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from drawn import list_charts
from lab import THEMES, Notebook, launch_browser, serve

ROOT = Path(__file__).parents[1]
OUT = ROOT / "results" / "gallery"
_CHART = ".vega-embed .marks"  # a canvas


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help=f"{', '.join(list_charts())} (default: all)")
    names = parser.parse_args().figures or list_charts()
    for theme in THEMES:
        _take(names, theme)


def _take(names: list[str], theme: str) -> None:
    """Take the screenshots of a theme, each of the output of a cell with the page around."""
    folder = OUT / theme
    folder.mkdir(parents=True, exist_ok=True)
    setup = f"%load_ext ngbkit\nimport sys\nsys.path.insert(0, {str(ROOT / 'tests')!r})\nfrom drawn import draw_example"
    with (
        tempfile.TemporaryDirectory() as home,
        serve(Path(home), Path(home) / "state", theme=theme) as address,
        launch_browser() as browser,
    ):
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        cells = [setup, *(f"draw_example({name!r})" for name in names)]
        notebook = Notebook(page, address, Path(home) / "work", *cells)
        notebook.run(0)
        for number, name in enumerate(names, 1):
            notebook.run(number)
            cell = notebook.cell(number)
            cell.locator(_CHART).wait_for()
            target = folder / f"{name}.png"
            cell.screenshot(path=target)
            print(target, flush=True)


if __name__ == "__main__":
    main()
