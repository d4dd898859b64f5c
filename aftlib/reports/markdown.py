"""Markdown to HTML with the formulas as MathML, which browsers set without script or network."""

from __future__ import annotations

import re
from html import escape

from math_core import LatexError, LatexToMathML
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

# Prose of a project, not of strangers: raw HTML in it is meant.
_LATEX = LatexToMathML(fancy_error=False, xml_namespace=False)


def mathml(latex: str, block: bool = False) -> str:
    r"""Return `latex` as MathML; what cannot be read is shown as source, with the reason as title.

    A ``\tag`` in a displayed formula works as it does in Jupyter.
    """
    source = latex.strip()
    if block and r"\tag" in source and not source.startswith(r"\begin{"):
        source = rf"\begin{{equation}}{source}\end{{equation}}"
    try:
        return _LATEX.convert_with_local_state(source, displaystyle=block)
    except LatexError as error:
        return f'<code class="formula" title="{escape(str(error))}">{escape(latex)}</code>'


def slug(text: str) -> str:
    """Return the anchor of a heading."""
    return re.sub(r"\W+", "-", re.sub(r"<[^>]+>|&\w+;", "", text)).strip("-").lower()


_NOBREAK = r'<span class="nobreak">\1\2</span>'


class _Renderer(IPythonRenderer):
    def heading(self, text: str, level: int, **attrs: object) -> str:
        anchor = slug(text)
        link = f'<a class="anchor" href="#{anchor}" aria-label="link to this section">#</a>'
        return f'<h{level} id="{anchor}">{text}{link}</h{level}>\n'

    def inline_math(self, body: str) -> str:
        return mathml(body)

    def paragraph(self, text: str) -> str:
        # A formula's end is no place for a line to break before the punctuation that follows.
        kept = re.sub(r"(<math>(?:(?!</math>).)*</math>)([.,;:!?)]+)", _NOBREAK, text)
        return str(super().paragraph(kept))

    def block_math(self, body: str) -> str:
        return f'<span class="formula-block">{mathml(body, block=True)}</span>'

    def latex_environment(self, name: str, body: str) -> str:
        return self.block_math(rf"\begin{{{name}}}{body}\end{{{name}}}")

    def table(self, text: str) -> str:
        return f'<div class="wide"><table>{text}</table></div>\n'


def to_html(text: str, folder: str = "", attachments: dict | None = None) -> str:
    """Return Markdown `text` as HTML, with pictures (relative to `folder`) put into the page."""
    renderer = _Renderer(
        escape=False, embed_images=True, path=folder, attachments=attachments or {}
    )
    return MarkdownWithMath(renderer=renderer).render(text)


def to_inline_html(text: str) -> str:
    """Return one paragraph of Markdown as HTML without its ``<p>``."""
    html = to_html(text).strip()
    return html.removeprefix("<p>").removesuffix("</p>")
