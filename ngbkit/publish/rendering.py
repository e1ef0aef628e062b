"""Extends Sphinx for the pages of a site: formulas as MathML, and highlighted code."""

from __future__ import annotations

import ast
import re
from html import escape
from typing import TYPE_CHECKING, Any

from docutils import nodes
from docutils.transforms import Transform
from docutils.utils.math.latex2mathml import tex2mathml
from ipython_pygments_lexers import IPython3Lexer
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexer import bygroups, inherit, using
from pygments.lexers import Python3Lexer
from pygments.token import Operator, Text
from sphinx.util import logging

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

_ENVIRONMENT = re.compile(r"(\\(?:begin|end)\{)(?:align|equation|gather|split)\*?\}")


class CellLexer(IPython3Lexer):  # type: ignore[misc]  # has no types
    """Python with magics, also below a magic of ngbkit that takes a cell."""

    name = "IPython cell"
    tokens = {  # noqa: RUF012  # pygments reads it from the class
        "root": [
            (r"(?s)(\s*)(%%ng\w+)([^\n]*\n)(.*)", bygroups(Text, Operator, Text, using(Python3Lexer))),
            inherit,
        ]
    }


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the extension with Sphinx."""
    app.add_html_math_renderer("mathml", (_visit_math, None), (_visit_math, None))
    app.add_lexer("ipython3", CellLexer)
    app.add_transform(_LanguageGuess)
    app.connect("env-updated", _check_files)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def highlight_code(code: str) -> str:
    """Highlight the code of a cell as HTML, in the colours of the page."""
    return str(highlight(code, CellLexer(), HtmlFormatter()))


def render_formula(text: str, *, block: bool = False) -> str:
    """Render a formula of LaTeX as MathML, or as its source where it has a command that docutils does not know."""
    try:
        # docutils knows only the environments within a formula.
        formula = str(tex2mathml(_ENVIRONMENT.sub(r"\1aligned}", text)))
        return formula.replace("<math ", '<math display="block" ', 1) if block else formula
    except ValueError:
        tag = "pre" if block else "code"
        return f"<{tag}>{escape(text)}</{tag}>"


def guess_language(code: str) -> str:
    """Guess the language of code that names none: cells of a notebook, Python, or else a shell."""
    if code.startswith("%"):
        return "ipython3"
    try:
        ast.parse(code)
    except SyntaxError:
        return "bash"
    return "ipython3"


def _check_files(app: Sphinx, env: BuildEnvironment) -> None:
    """Refuse a picture or a linked file from outside of the sources, which would be published."""
    # myst-nb writes the pictures of outputs to the second.
    folders = (app.srcdir, app.outdir.parent / "jupyter_execute")
    for name in (*env.images, *env.dlfiles):
        if not any((app.srcdir / name).resolve().is_relative_to(folder.resolve()) for folder in folders):
            logging.getLogger(__name__).warning(
                "invalid link or picture: got %s; expected a file in the folder of the notebooks", name
            )


class _LanguageGuess(Transform):  # type: ignore[misc]  # has no types
    """Names the language of indented code of Markdown, which has none."""

    default_priority = 100

    def apply(self) -> None:
        """Name the language of each block of code."""
        for block in self.document.findall(nodes.literal_block):
            if block.get("language") == "none":
                block["language"] = guess_language(block.astext())


def _visit_math(translator: Any, node: nodes.math | nodes.math_block) -> None:
    """Write a formula into a page."""
    block = isinstance(node, nodes.math_block)
    tag = "div" if block else "span"
    translator.body.append(translator.starttag(node, tag, "", CLASS="math notranslate nohighlight"))
    translator.body.append(f"{render_formula(node.astext(), block=block)}</{tag}>")
    raise nodes.SkipNode
