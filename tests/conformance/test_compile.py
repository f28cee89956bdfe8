"""Models compiled for real, by inductor; the conformance suite uses a stand-in."""

import pytest
import torch
from support import CATALOGUE
from support.job import Job
from torch._dynamo.utils import counters


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("name", ["sox", "msvrm-v1-age", "msvrm-v2-age", "msvrm-v3-age"])
@pytest.mark.parametrize("kind", ["network", "batchnorm"])
def test_inductor(name, kind):
    """The same trajectory, and no graph after the first steps."""
    job, twin = Job(CATALOGUE[name], kind=kind), Job(CATALOGUE[name], kind=kind)
    for model in (job.model, twin.model):
        for layer in model:
            if isinstance(layer, torch.nn.Dropout):
                layer.p = 0.0  # inductor draws its masks from another stream
    torch.compiler.reset()
    compiled = torch.compile(twin.model)
    graphs = []
    for _ in range(10):
        job.step()
        if twin.opt.snapshot_due:
            everything = twin.problem.everything()
            twin.opt.snapshot(lambda: twin.problem.inner(compiled, everything))  # noqa: B023
        draw = twin.draw()
        twin.opt.step(lambda: twin.problem.inner(compiled, draw))  # noqa: B023
        graphs.append(counters["stats"]["unique_graphs"])
    torch.testing.assert_close(job.w, twin.w, rtol=1e-10, atol=1e-10)
    assert graphs[-1] == graphs[5], f"recompiled: {graphs}"
