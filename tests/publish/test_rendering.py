"""Formulas and code of pages: MathML and colours, without a script."""

from __future__ import annotations

import re

import pytest

from ngbkit.publish.rendering import guess_language, highlight_code, render_formula


def test_formulas_are_mathml() -> None:
    """A formula, also one of aligned equations, is MathML; one with an unknown command is its source."""
    fraction = render_formula(r"\frac{T_c(b)}{T(b)}")
    equations = render_formula("\\begin{align*}\na &= b \\\\\nc &= d\n\\end{align*}", block=True)

    assert "<mfrac>" in fraction
    assert 'display="block"' not in fraction
    assert 2 == equations.count("<mtr>")
    assert 'display="block"' in equations
    assert r"<code>\nosuchcommand&lt;1</code>" == render_formula(r"\nosuchcommand<1")


def test_cells_of_magics_are_highlighted() -> None:
    """The code below a magic of ngbkit is Python."""
    page = highlight_code("%%ngbench -c identity -o ds\nimport torch\n")

    assert re.search(r'<span class="\w+">import</span>', page)
    assert '<span class="nn">torch</span>' in page


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("%load_ext ngbkit", "ipython3"),
        ("import ngbkit\n\nngbkit.load('a.nc')", "ipython3"),
        ("ngbkit verify site/  # a comment", "bash"),
        ("pip install '.[all]'", "bash"),
    ],
)
def test_the_language_of_code_is_guessed(code: str, expected: str) -> None:
    """Indented code of a text is a cell, Python or a shell."""
    assert expected == guess_language(code)
