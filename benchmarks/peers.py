"""A training step of LibAUC 2.0.1, of fcco and of torch's Adam, on the same samples, in one run.

    make bench-peers

Every step is divided by the bare forward pass, binary cross-entropy and backward pass of the same
network on the same 640 samples, within a round. LibAUC is installed beside this script, in a
directory that only the measuring process sees; without a network the other rows are measured
alone. *Same pairs*: fcco compares every pair that LibAUC compares. *As drawn*: the batch that
fcco's own data set draws, as many samples, but only so many anchors and fewer pairs.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import peer_cases
import torch
from networks import CNN, MLP, bare, moved
from tables import arguments, markdown, save
from timing import Spread, interleave, milliseconds, ratio

HERE = Path(__file__).parent
PLACE = HERE / ".peers" / "libauc"
LIGHT = {"tqdm": "tqdm", "numpy": "numpy", "scipy": "scipy", "sklearn": "scikit-learn"}
COLUMNS = ("", "bare ms", "LibAUC", "fcco", "fcco / LibAUC")


def install():
    """LibAUC alone, and those light packages it imports that are not there; torch is."""
    if not (PLACE / "libauc").exists():
        missing = [name for module, name in LIGHT.items() if not importlib.util.find_spec(module)]
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        pip += ["--target", str(PLACE), "-c", str(HERE.parent / "constraints.txt")]
        try:
            if missing:
                subprocess.run([*pip, *missing], check=True)
            subprocess.run([*pip, "--no-deps", "libauc==2.0.1"], check=True)
        except subprocess.CalledProcessError:
            print("LibAUC could not be installed: its rows are left out.", file=sys.stderr)


def measure(network_name, network, seconds, clock):
    """One row for each case and each way fcco takes it."""
    groups, checks = {}, []
    for name, build in peer_cases.CASES.items():
        torch.manual_seed(0)
        case = build(network.shape)
        runs = {}
        for who, make in case.steps().items():
            torch.manual_seed(0)
            model = network.build(case.outputs)
            runs[who] = make(model)
            before = [p.detach().clone() for p in model.parameters()]
            checks.append((f"{name}, {who}", model, before))
        torch.manual_seed(0)
        targets = torch.rand(len(case.inputs), case.outputs).round()
        runs["bare"] = bare(network.build(case.outputs), case.inputs, targets)
        groups[name] = runs
    times = interleave(groups, seconds, clock=clock)
    for name, model, before in checks:
        assert moved(model, before), f"{name} did not move the weights"
    return [row for name in groups for row in rows(network_name, name, times[name])]


def rows(network, case, times):
    peer = ratio(times, "LibAUC", "bare").json() if "LibAUC" in times else None
    for who in times:
        if who in ("bare", "LibAUC"):
            continue
        yield {
            "network": network,
            "case": case,
            "way": who,
            "bare_ms": milliseconds(times, "bare"),
            "peer": peer,
            "own": ratio(times, who, "bare").json(),
            "own_to_peer": ratio(times, who, "LibAUC").json() if peer else None,
        }


def cells(row):
    spread = [Spread(**row[key]) if row[key] else "" for key in ("peer", "own", "own_to_peer")]
    return f"{row['case']}; {row['way']}", f"{row['bare_ms']:.1f}", *spread


def main():
    args = arguments(__doc__, only=("", "MLP or CNN"))
    if "FCCO_PEERS" not in os.environ:
        install()
        path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(PLACE)]))
        inside = os.environ | {"FCCO_PEERS": "1", "PYTHONPATH": path}
        sys.exit(subprocess.run([sys.executable, *sys.argv], env=inside).returncode)
    results = []
    for name, network, seconds in (("MLP", MLP, 60), ("CNN", CNN, 240)):
        if args.only not in name:
            continue
        found = measure(name, network, seconds / 5 if args.quick else seconds, args.timer)
        print(f"\n{name}\n\n{markdown(COLUMNS, map(cells, found))}", flush=True)
        results += found
    save(args, {"peers": results})


if __name__ == "__main__":
    main()
