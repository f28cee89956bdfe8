"""A mkdocs hook: fenced blocks of ``math`` become MathML, which browsers draw without a script.

GitHub renders the same blocks as formulas.
"""

from latex2mathml.converter import convert


def formula(source, language, css_class, options, md, **_) -> str:
    """The block as an HTML element that scrolls where the page is too narrow for it."""
    return f'<div class="formula">{convert(source, display="block")}</div>'


def on_config(config) -> None:
    """Called by mkdocs."""
    fence = {"name": "math", "class": "formula", "format": formula}
    config.mdx_configs["pymdownx.superfences"] = {"custom_fences": [fence]}
