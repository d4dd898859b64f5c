"""Sphinx: these pages as HTML, with formulas as MathML and no script or style from elsewhere."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parents[1]))

import aftlib
from aftlib.command.pages import mathml

project = "aftlib"
author = copyright = "The aftlib authors"
version = release = aftlib.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "numpydoc"]
exclude_patterns = ["_build"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
autodoc_mock_imports = ["pyspark"]  # the pages are made without Spark
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings say it, with shapes and units
numpydoc_show_class_members = False
html_theme = "furo"
html_title = f"aftlib {version}"
html_math_renderer = "mathml"


def write_formula(writer: Any, node: nodes.math | nodes.math_block) -> None:
    """Write a formula as MathML."""
    block = isinstance(node, nodes.math_block)
    html = mathml(node.astext(), block)
    writer.body.append(f"<div>{html}</div>" if block else html)
    raise nodes.SkipNode


def add_reports(app: Sphinx, failure: Exception | None) -> None:
    """Copy the reports of the last full run into the site, with links to its pages."""
    stored = Path(__file__).parents[1] / "reports" / "full"
    if failure is None and app.builder.format == "html" and stored.is_dir():
        shutil.copytree(stored, app.outdir / "reports", dirs_exist_ok=True)
        for report in stored.glob("*.html"):
            (app.outdir / "reports" / report.name).write_text(link_site(report.read_text()))


def link_site(page: str) -> str:
    """Return a stored report whose links to docs in the checkout lead to pages of the site."""
    return re.sub(r'href="\.\./\.\./docs/([^"]*)\.md', r'href="../\1.html', page)


def setup(app: Sphinx) -> None:
    """Register the renderer of formulas, and the reports."""
    app.connect("build-finished", add_reports)
    renderers = {"inline_renderers": (write_formula, None)}
    app.add_html_math_renderer("mathml", **renderers, block_renderers=(write_formula, None))
