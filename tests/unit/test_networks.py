"""Networks by name, and every method on the deep ones with BatchNorm."""

from copy import deepcopy
from functools import lru_cache
from itertools import product

import pytest
import torch

from fcco.methods import REGISTRY
from fcco.objectives import MultiTaskAUC
from fcco_lab.entries import BASELINES
from fcco_lab.networks import NETWORKS, build_network
from fcco_lab.training import Config, Training
from fcco_lab.training.config import choices_of
from fcco_lab.training.problem import Problem

DEEP = ("resnet18", "resnet34", "densenet121")
WEIGHTS = {
    "resnet18": 11_170_000,
    "resnet34": 21_280_000,
    "densenet121": 6_950_000,
}
"""Of the published networks, without the stem and the last layer, which depend on the data."""


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", NETWORKS)
def test_grey_and_colour_images_of_any_size(name):
    for channels, side in ((1, 8), (3, 33), (1, 40)):
        shape = (channels, side, side + 1)
        network = build_network(name, shape, 3, seed=0).eval()
        generator = torch.Generator().manual_seed(0)
        inputs = torch.rand(2, *shape, generator=generator)
        with torch.no_grad():
            outputs = network(inputs)
        assert outputs.shape == (2, 3)
        assert outputs.isfinite().all()
        assert not outputs[0].equal(outputs[1]), "it looks at its input"


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", NETWORKS)
def test_the_seed_alone_decides_the_weights(name):
    shape = (1, 8, 8)
    torch.manual_seed(7)
    before = torch.get_rng_state()
    one = build_network(name, shape, 3, seed=1).state_dict()
    assert torch.get_rng_state().equal(before), "the global stream is left alone"
    torch.rand(5)
    two = build_network(name, shape, 3, seed=1).state_dict()
    other = build_network(name, shape, 3, seed=2).state_dict()
    assert all(one[key].equal(two[key]) for key in one)
    assert not all(one[key].equal(other[key]) for key in one)


@pytest.mark.parametrize(
    ("name", "stem"), [*product(DEEP, [""]), ("resnet18", "-imagenet"), ("resnet34", "-imagenet")]
)
def test_they_are_the_networks_of_their_names(name, stem):
    network = build_network(name + stem, (3, 32, 32), 10, seed=0)
    count = sum(p.numel() for p in network.parameters())
    assert count == pytest.approx(WEIGHTS[name], rel=0.005)
    first = next(m for m in network.modules() if isinstance(m, torch.nn.Conv2d))
    assert (first.kernel_size, first.stride) == (((7, 7), (2, 2)) if stem else ((3, 3), (1, 1)))


def test_features_need_a_network_that_takes_them():
    assert build_network("mlp", (123,), 1, seed=0)(torch.zeros(2, 123)).shape == (2, 1)
    with pytest.raises(ValueError, match=r"'resnet18' takes images.*use mlp or linear"):
        build_network("resnet18", (123,), 1, seed=0)
    with pytest.raises(ValueError, match=r"unknown network 'resnet19' \(did you mean 'resnet18'"):
        build_network("resnet19", (1, 8, 8), 1, seed=0)


SIZE, BLOCKS, SAMPLES, TASKS, STEPS = 12, 2, 2, 3, 2
DRAWN = BLOCKS * SAMPLES


@lru_cache(maxsize=1)
def shared(name):
    return build_network(name, (1, 8, 8), TASKS, seed=0)


def tiny():
    """Images of noise; a network is built once and copied."""
    generator = torch.Generator().manual_seed(0)
    classes = torch.arange(SIZE) % TASKS
    inputs = torch.randn(SIZE, 1, 8, 8, generator=generator) + classes.view(-1, 1, 1, 1)
    objective = MultiTaskAUC(classes)
    return Problem(
        train_inputs=inputs,
        objective=objective,
        network=lambda config: deepcopy(shared(config.network)),
        test_inputs=inputs,
        measure=lambda scores: {"auc": objective.metric(scores)},
        classes=classes,
    )


def queries_of(method):
    """Values and gradients of ``STEPS`` steps, as the registry has them."""
    if method in BASELINES:
        return STEPS * DRAWN, STEPS * DRAWN
    entry = REGISTRY[method]
    # In the first step all points coincide.
    values, gradients = (
        DRAWN * (1 + (STEPS - 1) * cost)
        for cost in (entry.method.value_cost, entry.method.gradient_cost)
    )
    if entry.method.anchored:
        # The first exact pass comes in chunks of a step's size: it meets tasks again after the
        # first of them, and only a second sweep can weigh the chunks.
        values, gradients = values + 2 * SIZE * TASKS, gradients + (SIZE + DRAWN) * TASKS
    return values, gradients


FAST = [("resnet18", "msvrm-v2"), ("resnet18", "msvrm-v3"), ("densenet121", "msvrm-v2")]


@pytest.mark.parametrize(
    ("network", "method"),
    [
        # Each of them takes seconds.
        pytest.param(*pair, marks=[] if pair in FAST else slow)
        for slow in [pytest.mark.slow]
        for pair in product(DEEP, choices_of("method"))
    ],
)
def test_every_method_takes_steps(network, method):
    config = Config(
        network=network,
        method=method,
        update="plain",
        lr=0.01,
        steps=STEPS,
        evaluations=1,
        blocks_per_step=BLOCKS,
        samples_per_block=SAMPLES,
        snapshot_every=STEPS,
    )
    training = Training(config, problem=tiny())
    record = training.run()
    assert record["status"] == "finished"
    before, after = shared(network).state_dict(), training.model.state_dict()
    for name, value in after.items():
        assert value.isfinite().all(), name
        if name.endswith("num_batches_tracked"):
            assert value == STEPS, "once a step, however many points it looked at"
        elif name.endswith(("running_mean", "running_var")) or value.ndim > 1:
            assert not value.equal(before[name]), name
    last = record["curve"][-1]
    assert (last["values"], last["gradients"]) == queries_of(method)
    assert last["samples"] == STEPS * DRAWN
