"""A process that starts one run over and over and has it killed, by SIGKILL, wherever it may be.

A new interpreter takes seconds to import torch, so this one imports it once and forks a child for
each start. ``python storm.py`` reads its orders from the command line as JSON and prints a report.
"""

import json
import os
import random
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path

import torch

from fcco_lab.files import temporary_name
from fcco_lab.training import Config, Training, problem
from fcco_lab.training.checkpoints import Checkpoints
from fcco_lab.training.problem import load_problem

PLACES = ("fsync", "replace", "unlink", "half a checkpoint", "evaluation", "network")
"""Where a child may be told to kill itself: at one of its calls of these."""


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def count_down(call, calls, *, after):
    """``call``, but the process dies in the given one, before or after what it does."""
    left = [calls]

    def counted(*arguments, **more):
        left[0] -= 1
        if left[0] == 0 and not after:
            die()
        result = call(*arguments, **more)
        if left[0] == 0:
            die()
        return result

    return counted


def arm(place, calls, *, after):
    """Set the trap, in the child."""
    if place in ("fsync", "replace"):
        setattr(os, place, count_down(getattr(os, place), calls, after=after))
    elif place == "unlink":
        Path.unlink = count_down(Path.unlink, calls, after=after)
    elif place == "evaluation":
        area = count_down(problem.MultiTaskAUC.metric, calls, after=after)
        problem.MultiTaskAUC.metric = area
    elif place == "network":
        problem.build_network = count_down(problem.build_network, 1, after=after)
    else:
        whole, left = Checkpoints.save, [calls]

        def save(self, state, *, step):
            left[0] -= 1
            if left[0] == 0:
                self.directory.mkdir(parents=True, exist_ok=True)
                half = temporary_name(self.directory / f"step-{step:010d}.pt")
                with half.open("wb") as file:
                    torch.save(state, file)
                os.truncate(half, half.stat().st_size // 2)
                die()
            return whole(self, state, step=step)

        Checkpoints.save = save


def child(config, problem, output, trap):
    """One start of the run in a process of its own; returns its id."""
    with warnings.catch_warnings():
        # Python 3.12 warns of threads; here there are none that hold a lock.
        warnings.simplefilter("ignore", DeprecationWarning)
        process = os.fork()
    if process:
        return process
    code = 1
    try:
        if trap is not None:
            arm(trap[0], trap[1], after=trap[2])
        Training(config, output=output, problem=problem, checkpoint_seconds=0.0).run()
        code = 0
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(code)


def storm(config, output, *, kills, seed, longest):
    """Start and kill until that has happened ``kills`` times, then let the run finish."""
    chance, problem = random.Random(seed), load_problem(config)
    dead, where = 0, dict.fromkeys(("a moment", *PLACES), 0)
    for attempt in range(4 * kills):
        if dead == kills:
            break
        # Each place once before a fast machine is done, then two moments for every place.
        place = PLACES[(attempt if attempt < len(PLACES) else attempt // 3) % len(PLACES)]
        if attempt >= len(PLACES) and attempt % 3:
            place = "a moment"
        calls = chance.randint(1, 2 if place == "evaluation" else 9)  # few, not to get to the end
        trap = None if place == "a moment" else (place, calls, chance.random() < 0.5)
        process = child(config, problem, output, trap)
        if place == "a moment":
            time.sleep(chance.uniform(0.0, longest))
            os.kill(process, signal.SIGKILL)
        status = os.waitpid(process, 0)[1]
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            dead += 1
            where[place] += 1
        elif os.waitstatus_to_exitcode(status) != 0:
            return {"kills": dead, "where": where, "exit": os.waitstatus_to_exitcode(status)}
    status = os.waitpid(child(config, problem, output, None), 0)[1]
    return {"kills": dead, "where": where, "exit": os.waitstatus_to_exitcode(status)}


if __name__ == "__main__":
    torch.set_num_threads(1)
    reports = []
    for order in json.loads(sys.argv[1]):
        config, output = Config.from_dict(order["config"]), Path(order["output"])
        Training(config, problem=load_problem(config))  # the first optimizer imports much of torch
        calm = os.waitpid(child(config, load_problem(config), output / "calm", None), 0)[1]
        report = storm(
            config,
            output / "stormy",
            kills=order["kills"],
            seed=order["seed"],
            longest=order["longest"],
        )
        reports.append(report | {"calm": os.waitstatus_to_exitcode(calm)})
    sys.stdout.write(json.dumps(reports))
