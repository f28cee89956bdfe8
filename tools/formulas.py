"""A mkdocs hook: fenced blocks of ``math`` become MathML, which browsers draw without a script.

GitHub renders the same blocks as formulas.
"""

from latex2mathml.converter import convert


def formula(source, language, css_class, options, md, **_) -> str:
    """The block as an HTML element that scrolls where the page is too narrow for it."""
    drawn = convert(source, display="block")
    # A norm's bars would stretch over all that stands beside them, such as a sum.
    drawn = drawn.replace("<mo>&#x02016;</mo>", '<mo stretchy="false">&#x02016;</mo>')
    return f'<div class="formula">{drawn}</div>'


def on_config(config) -> None:
    """Called by mkdocs."""
    fence = {"name": "math", "class": "formula", "format": formula}
    config.mdx_configs["pymdownx.superfences"] = {"custom_fences": [fence]}
