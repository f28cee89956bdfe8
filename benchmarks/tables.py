"""What every benchmark shares at its end: a Markdown table on the screen and a JSON file."""

import argparse
import json
import os
import platform

import torch
from timing import CLOCKS


def arguments(description, **options):
    """The command line; ``options`` are further flags with their defaults and help."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--output", metavar="FILE.json", help="also write the results here")
    parser.add_argument("--quick", action="store_true", help="fewer rounds: noisier, a minute")
    parser.add_argument(
        "--clock", choices=CLOCKS, default="wall", help="cpu: for a machine that is in use"
    )
    for name, (default, text) in options.items():
        parser.add_argument(f"--{name}", type=type(default), default=default, help=text)
    torch.set_num_threads(1)
    args = parser.parse_args()
    args.timer = CLOCKS[args.clock]
    return args


def markdown(headers, rows):
    """A table, the first column to the left and the others to the right."""
    lines = [headers, ["---"] + ["---:"] * (len(headers) - 1), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def save(args, results):
    """Write ``results``, {name: rows}, with what they were measured on."""
    if args.output is None:
        return
    about = {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory kept": "MALLOC_TRIM_THRESHOLD_" in os.environ,
        "clock": args.clock,
        "quick": args.quick,
    }
    with open(args.output, "w") as file:
        json.dump({"about": about} | results, file, indent=1)
        file.write("\n")
