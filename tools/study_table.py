"""Prints the table of a study from the results of `fcco study NAME`, in Markdown.

python tools/study_table.py gamma docs/results/studies/gamma.jsonl
"""

import json
import sys
from pathlib import Path

from fcco.experiments.summaries import summary


def main(name: str, path: Path) -> str:
    records = [json.loads(line) for line in path.read_text().splitlines()]
    records.sort(key=lambda r: [str(r.get(k)) for k in ("method", "rule", "alpha")] + [r["lr"]])
    heading, *rows = summary(name, records)
    lines = [heading, tuple("---" for _ in heading), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


if __name__ == "__main__":
    sys.stdout.write(main(sys.argv[1], Path(sys.argv[2])))
