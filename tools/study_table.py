"""Prints the table of a study from the results of `fcco study NAME`, in Markdown.

python tools/study_table.py gamma docs/results/studies/gamma.jsonl
"""

import json
import sys
from pathlib import Path

from fcco_lab.studies.catalogue import STUDIES
from fcco_lab.studies.summaries import summary


def main(name: str, path: Path) -> str:
    places = {case.name: place for place, case in enumerate(STUDIES[name]())}
    records = [json.loads(line) for line in path.read_text().splitlines()]
    records.sort(key=lambda record: places[record["name"]])
    heading, *rows = summary(name, records)
    lines = [heading, tuple("---" for _ in heading), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


if __name__ == "__main__":
    sys.stdout.write(main(sys.argv[1], Path(sys.argv[2])))
