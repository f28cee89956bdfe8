"""What the guide shows runs as it stands."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_guide_losses(capsys):
    text = (ROOT / "docs" / "guide" / "losses.md").read_text()
    names = {}
    for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(code, "losses.md", "exec"), names)
    value, start = map(float, re.findall(r"\d+\.\d+", capsys.readouterr().out))
    assert value < start - 0.2
