"""Small records of runs for the tests of the report."""


def run(data="usps", method="sox", update="plain", *, seed=0, values=(1.0, 0.5, 0.25), **more):
    """A run that looked at steps 0, 10, 20, ... and saw ``values`` of the objective.

    ``more`` holds settings, and ``status``, ``reason``, ``name`` or ``cost`` (queries a sample).
    """
    cost, status = more.pop("cost", 2), more.pop("status", "finished")
    reason = more.pop("reason", "")
    name = more.pop("name", f"{data} {method} {update} {more} seed={seed}")
    curve = [
        {
            "step": 10 * k,
            "samples": 640 * k,
            "values": 640 * k * cost,
            "gradients": 640 * k,
            "work": 640 * k * (cost + 2),
            "seconds": 0.5 * k * cost,
            "objective": value,
            "auc": 1 - value / 2,
            "ap": 1 - value * 0.9,
        }
        for k, value in enumerate(values)
    ]
    end = {
        key: curve[-1][key] if status == "finished" else None for key in ("objective", "auc", "ap")
    }
    config = {"data": data, "method": method, "update": update, "lr": 0.1, "seed": seed} | more
    return {
        "name": name,
        "config": config,
        "status": status,
        "reason": reason,
        "curve": curve,
        "num_blocks": 10,
        "train_size": 6000,
        "test_size": 2000,
    } | end
