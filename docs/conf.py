"""Sphinx: these pages as HTML, with formulas as MathML and no script or style from elsewhere."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.transforms import SphinxTransform

sys.path.insert(0, str(Path(__file__).parents[1]))

import aftlib
from aftlib.reports.documents import DOCUMENTS
from aftlib.reports.html import mathml, render_document

project = "aftlib"
author = copyright = "The aftlib authors"
version = release = aftlib.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "numpydoc"]
exclude_patterns = ["_build"]
source_suffix = {".md": "markdown"}

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

autodoc_mock_imports = ["pyspark"]  # the pages are made without Spark
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings say it, with shapes and units
autosummary_generate = False
numpydoc_show_class_members = False

html_theme = "furo"
html_title = f"aftlib {version}"
html_copy_source = False
html_show_sphinx = False
html_math_renderer = "mathml"


class Sizes(SphinxTransform):
    """Keep |O| in a docstring as the size of a set, not the name of a substitution."""

    default_priority = 100  # before docutils looks for the texts

    def apply(self, **kwargs: Any) -> None:
        """Replace each reference to an undefined text by its source."""
        for node in list(self.document.findall(nodes.substitution_reference)):
            if node["refname"] not in self.document.substitution_defs:
                node.parent.replace(node, nodes.Text(f"|{node.astext()}|"))


def set_formula(writer: Any, node: nodes.math | nodes.math_block) -> None:
    """Write a formula as MathML; one that cannot be set ends the build."""
    block = isinstance(node, nodes.math_block)
    html = mathml(node.astext(), block)
    if "<math" not in html:
        raise ExtensionError(f"no formula that can be set: {node.astext()}")
    writer.body.append(f"<div>{html}</div>" if block else html)
    raise nodes.SkipNode


def render(app: Sphinx, name: str, source: list[str]) -> None:
    """Let the renderer of the reports make a document's page; Sphinx keeps headings and index."""
    document = {f"documents/{document.page}": document for document in DOCUMENTS.values()}.get(name)
    if document is None:
        return
    parts = re.split(r"^(#{1,3} .*)$", source[0], flags=re.MULTILINE)
    for place, part in enumerate(parts):
        if part.strip() and not part.startswith("#"):
            html = str(render_document(document, part)).replace(
                '<div class="wide"><table>',
                '<div class="table-wrapper docutils container"><table class="docutils">',
            )
            parts[place] = f"````{{raw}} html\n{html}\n````"
    source[0] = "\n\n".join(parts)


def setup(app: Sphinx) -> None:
    """Have formulas, sizes and the documents' pages set as above."""
    app.connect("source-read", render)
    renderers = {"inline_renderers": (set_formula, None), "block_renderers": (set_formula, None)}
    app.add_html_math_renderer("mathml", **renderers)
    app.add_transform(Sizes)
