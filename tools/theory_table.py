"""Writes docs/results/rates/table.md, a part of docs/theory.md, from what `fcco rates` measured.

python tools/theory_table.py docs/results/rates/rates.json > docs/results/rates/table.md
"""

import json
import sys
from pathlib import Path


def main(path: Path) -> str:
    rows = [
        "| theorem | quantity | against | claimed | measured (95 %) | verdict |",
        "|---|---|---|---|---|---|",
    ]
    for r in json.loads(path.read_text()):
        fit = r["measured"]
        rows.append(
            f"| {r['theorem']} | {r['quantity']} | {r['axis']} | {r['claimed']:+.2f} "
            f"| {fit['slope']:+.2f} ({fit['low']:+.2f}, {fit['high']:+.2f}) | {r['word']} |"
        )
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    sys.stdout.write(main(Path(sys.argv[1])))
