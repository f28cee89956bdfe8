"""CPU seconds until ``fcco --help`` is shown, and other starts, over those of ``import torch``.

    python benchmarks/startup.py --rounds 9

Every command is a process of its own; a round runs each once, and ratios are within a round.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from timing import Spread

STARTS = {
    "import torch": ["-c", "import torch"],
    "import fcco": ["-c", "import fcco"],
    "fcco --help": ["-m", "fcco_lab", "--help"],
    "fcco train --help": ["-m", "fcco_lab", "train", "--help"],
    "fcco data": ["-m", "fcco_lab", "data"],
}


def cpu_seconds(words):
    before = os.times()
    subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, check=True)
    after = os.times()
    return sum(after[2:4]) - sum(before[2:4])


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    for words in STARTS.values():
        cpu_seconds(words)  # compiles what is not compiled, and fills the disk's cache
    rounds = [
        {name: cpu_seconds(words) for name, words in STARTS.items()} for _ in range(args.rounds)
    ]
    rows = {
        name: {
            "seconds": Spread.of([one[name] for one in rounds]),
            "ratio": Spread.of([one[name] / one["import torch"] for one in rounds]),
        }
        for name in STARTS
    }
    for name, row in rows.items():
        print(f"{name:20} {row['seconds']} s  {row['ratio']} of import torch")
    if args.output:
        plain = {name: {key: v.json() for key, v in row.items()} for name, row in rows.items()}
        args.output.write_text(json.dumps(plain, indent=1) + "\n")


if __name__ == "__main__":
    main()
