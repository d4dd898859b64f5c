"""Sphinx: these pages as HTML, with formulas as MathML and no script or style from elsewhere."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.transforms import SphinxTransform

sys.path.insert(0, str(Path(__file__).parents[1]))

import aftlib
from aftlib.reports.html import mathml

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
    """Leave |O| in a docstring what it is there: the size of a set, and no name of a text."""

    default_priority = 100  # before docutils looks for the texts

    def apply(self, **kwargs: Any) -> None:
        """Replace each reference to a text that nobody has defined by what was written."""
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


def setup(app: Sphinx) -> None:
    """Have formulas and sizes set as above."""
    renderers = {"inline_renderers": (set_formula, None), "block_renderers": (set_formula, None)}
    app.add_html_math_renderer("mathml", **renderers)
    app.add_transform(Sizes)
