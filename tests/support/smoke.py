"""``python -m support.smoke``: check that an installed wheel works beside torch alone."""

import importlib.util
from importlib.metadata import version

import torch

from support.catalogue import CATALOGUE
from support.job import Job


def main() -> None:
    """Take a few steps with every optimizer, including exact passes."""
    for entry in CATALOGUE.values():
        job = Job(entry).run(4)
        if not job.w.isfinite().all():
            raise SystemExit(f"{entry.name} gave non-finite weights")
    extras = [name for name in ("numpy", "sklearn", "typer") if importlib.util.find_spec(name)]
    print(  # noqa: T201
        f"fcco {version('fcco')} works with torch {torch.__version__}; {len(CATALOGUE)} "
        f"optimizers stepped; extras present: {extras or 'none'}"
    )


if __name__ == "__main__":
    main()
