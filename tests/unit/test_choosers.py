"""The optimizers by name: they choose registered methods, refuse what these do not have, and take a
module, whose buffers they look up by name."""

import copy

import pytest
import torch
from support import CATALOGUE, EQUATIONS, Toy, assert_same, flat, make_model
from torch import nn

import fcco
from fcco.methods import REGISTRY, Entry, mars, register, registry
from fcco.optim import by_name

CHOICES = {
    "sox": (fcco.SOX, {}),
    "soap": (fcco.SOAP, {}),
    "bsgd": (fcco.BSGD, {}),
    **{f"msvrm-v{v}": (fcco.MSVRM, {"version": v}) for v in (1, 2, 3)},
    **{f"msvrm-v{v}-sp": (fcco.MSVRM, {"version": v, "single_point": True}) for v in (1, 2)},
    **{f"fresh-pair-v{v}": (fcco.FreshPair, {"version": v}) for v in (1, 2, 3)},
    **{f"variant-v{v}": (fcco.Variant, {"version": v}) for v in (1, 2, 3)},
}


@pytest.mark.parametrize("name", CHOICES)
def test_choosers_choose_registered_methods(name):
    chooser, arguments = CHOICES[name]
    problem = Toy()
    ours = chooser(make_model("linear", 1), problem, lr=0.1, **arguments)
    assert ours.method == REGISTRY[name].method
    named = by_name(name, make_model("linear", 1), problem, lr=0.1)
    assert_same(ours.state_dict()["param_groups"], named.state_dict()["param_groups"])


def test_unknown_and_taken_names():
    with pytest.raises(ValueError, match="no method is named 'sxo': there are sox, soap"):
        by_name("sxo", make_model("linear", 1), Toy(), lr=0.1)
    with pytest.raises(ValueError, match="'sox' is registered already"):
        register(REGISTRY["sox"])


def test_a_registered_method_of_ones_own(monkeypatch):
    entry = Entry(mars(0.5).with_one_slope())
    monkeypatch.setattr(registry, "REGISTRY", dict(REGISTRY))
    register(entry)
    assert by_name(entry.name, make_model("linear", 1), Toy(), lr=0.1).method is entry.method


def test_every_method_has_a_reference_loop():
    assert set(EQUATIONS) == set(REGISTRY)
    assert {entry.method for entry in CATALOGUE.values()} == set(REGISTRY)


@pytest.mark.parametrize(
    ("chooser", "arguments"),
    [
        (fcco.BSGD, {"beta": 0.5}),
        (fcco.BSGD, {"initial": 0.0}),
        (fcco.SOAP, {"alpha": 0.5}),
        (fcco.SOX, {"gamma": "age"}),
        (fcco.SOX, {"snapshot_every": 3}),
        (fcco.FreshPair, {"version": 1, "table_on": "cpu"}),
        (fcco.Variant, {"version": 1, "updated_slopes": True}),
        (fcco.MSVRM, {"version": 1, "momentum": 0.9}),
    ],
)
def test_what_a_method_does_not_have_is_an_error(chooser, arguments):
    key = list(arguments)[-1]
    match = f"{chooser.__name__}.* unexpected keyword argument {key!r}"
    with pytest.raises(TypeError, match=match):
        chooser(make_model("linear", 1), Toy(), lr=0.1, **arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"version": 3, "updated_slopes": True}, "msvrm-v3 has no variant with updated slopes"),
        ({"version": 1, "one_slope": True}, "msvrm-v1 has no variant with one slope"),
        ({"version": 3, "one_slope": True}, "msvrm-v3 has no variant with one slope"),
        ({"version": 2, "one_slope": True, "updated_slopes": True}, "exclude each other"),
    ],
)
def test_slopes_that_a_version_does_not_have(options, message):
    with pytest.raises(ValueError, match=message):
        fcco.MSVRM(make_model("linear", 1), Toy(), lr=0.1, **options)


class Counting(nn.Module):
    """Counts its calls in a buffer that it replaces, and normalises."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3, dtype=torch.float64)
        self.linear = nn.Linear(3, 1, dtype=torch.float64)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.calls = self.calls + 1
        return self.linear(self.norm(x))


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_module_brings_its_buffers_by_name(version):
    """Every step counts one call, at however many points it looks."""
    problem, model = Toy(6, 1), Counting()
    opt = fcco.MSVRM(model, problem, version=version, lr=0.05)
    generator = torch.Generator().manual_seed(0)
    for step in range(1, 6):
        if opt.snapshot_due:
            opt.snapshot(lambda: problem.inner(model, problem.everything()))
            assert int(model.calls) == step - 1, "an exact pass leaves no trace"
        draw = problem.draw(3, 2, generator)
        twin = copy.deepcopy(model)
        problem.inner(twin, draw)
        opt.step(lambda: problem.inner(model, draw))  # noqa: B023
        assert int(model.calls) == step
        assert_same(dict(model.named_buffers()), dict(twin.named_buffers()))


class Centred(nn.Module):
    """Makes two buffers at its first call: one had a place, the other had none."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 1, dtype=torch.float64)
        self.register_buffer("mean", None)

    def forward(self, x):
        if self.mean is None:
            self.mean = x.detach().mean((0, 1))
            self.register_buffer("size", x.detach().abs().amax())
        return self.linear((x - self.mean) / self.size)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_buffers_that_a_first_call_makes(version):
    """They are kept by the step that made them, and by nothing that leaves no trace."""
    problem, model = Toy(6, 1), Centred()
    opt = fcco.MSVRM(model, problem, version=version, lr=0.05)
    if version == 3:
        opt.snapshot(lambda: problem.inner(model, problem.everything()))
        assert dict(model.named_buffers()) == {}
    draw = problem.draw(3, 2, torch.Generator().manual_seed(0))

    def twice():
        probe = problem.inner(model, draw)
        return fcco.Probe(probe.blocks[[0, 0]], probe.values[[0, 0]])

    with pytest.raises(ValueError, match="probed twice"):
        opt.step(twice)
    assert dict(model.named_buffers()) == {}
    twin = copy.deepcopy(model)
    problem.inner(twin, draw)
    opt.step(lambda: problem.inner(model, draw))
    assert_same(dict(model.named_buffers()), dict(twin.named_buffers()))
    assert len(dict(model.named_buffers())) == 2


def test_a_module_is_its_parameters_and_its_buffers():
    ends = []
    for given in (True, False):
        torch.manual_seed(0)
        problem, model = Toy(6, 2), make_model("batchnorm", 2)
        buffers = {} if given else {"buffers": model.buffers()}
        opt = fcco.MSVRM(
            model if given else model.parameters(), problem, version=2, lr=0.05, **buffers
        )
        generator = torch.Generator().manual_seed(0)
        for _ in range(5):
            draw = problem.draw(3, 2, generator)
            opt.step(lambda: problem.inner(model, draw))  # noqa: B023
        buffers = flat(b.double() for b in model.buffers())
        ends.append(torch.cat([flat(model.parameters()), buffers]))
    assert torch.equal(*ends)


def test_a_module_and_buffers_are_one_too_many():
    model = make_model("batchnorm", 1)
    with pytest.raises(ValueError, match="a module brings its own buffers"):
        fcco.SOX(model, Toy(), lr=0.1, buffers=model.buffers())
