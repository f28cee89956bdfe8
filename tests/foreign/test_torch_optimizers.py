"""What torch expects of its own optimizers, asked of every method, on torch's own small problem.

The properties are those of PyTorch's ``test/test_optim.py``. Errors, groups, schedulers, hooks,
copies and state dicts are asked of compositional problems in
``conformance/test_torch_expectations``; here are those that need the problem of torch's tests,
whose inner value is the loss itself. ``test_upstream_files`` runs PyTorch's file itself where a
source tree is at hand.
"""

import pytest
import torch
from foreign.plain_optimizers import ADAPTED
from torch import nn

import fcco
from fcco import objectives as O
from fcco.methods import REGISTRY

NOT_GIVEN = {
    "errors": (
        "Of torch's erroneous inputs one has no parameters at all, which is what we report; the "
        "others raise what torch raises (conformance/test_torch_expectations)."
    ),
    "tensor_lr": "A tensor as lr is refused, in our words and not in torch's.",
    "state_dict_deterministic": (
        "Its last line reads the last group of a state dict, which holds the table. What it asks "
        "before that line holds, and is asked in conformance/test_torch_expectations."
    ),
    "forloop_goes_right_direction_multigpu": "There is no accelerator where the tests run.",
    "state_dict_with_cuda_params": "There is no accelerator where the tests run.",
    "complex": "Complex parameters are refused when the optimizer is built.",
    "rosenbrock_sparse": "Sparse gradients are refused in the step.",
    "foreach_matches_forloop": "There is one implementation; foreach= and fused= are no arguments.",
    "second_order_optims_return_consistent_types": "It is about L-BFGS alone.",
}
"""What torch expects of an optimizer and ours do not give, by the name of PyTorch's test."""

every_method = pytest.mark.parametrize("build", ADAPTED, ids=lambda cls: cls.__name__)
BY_NAME = {cls.__name__: cls for cls in ADAPTED}


class Squares:
    """|W x + b|^2 with random numbers: the problem of torch's tests."""

    def __init__(self, contiguous=True, dtype=torch.float64, seed=0):
        generator = torch.Generator().manual_seed(seed)

        def draw(*shape):
            numbers = torch.randn(*shape, 2, generator=generator, dtype=torch.float64).to(dtype)
            return numbers[..., 0].clone() if contiguous else numbers[..., 0]

        self.weight, self.bias = nn.Parameter(draw(10, 5)), nn.Parameter(draw(10))
        self.x = draw(5)

    @property
    def parameters(self):
        return [self.weight, self.bias]

    def loss(self):
        return (self.weight.mv(self.x) + self.bias).square().sum()

    def closure(self):
        for p in self.parameters:
            p.grad = None
        loss = self.loss()
        loss.backward()
        return loss


@every_method
@pytest.mark.parametrize("contiguous", [True, False])
def test_steps_go_in_the_right_direction(build, contiguous):
    squares = Squares(contiguous)
    assert squares.weight.is_contiguous() == contiguous
    optimizer = build(squares.parameters, lr=0.01)
    before = squares.loss().item()
    for _ in range(20):
        optimizer.step(squares.closure)
    assert squares.loss().item() < before


@pytest.mark.parametrize(
    "build",
    # A method that evaluates an older point needs the gradient there, which only a closure gives.
    [cls for cls in ADAPTED if not REGISTRY[cls.name].method.points],
    ids=lambda cls: cls.__name__,
)
def test_gradients_in_grad_or_from_a_closure_are_the_same(build):
    one, other = Squares(), Squares()
    optimizers = [build(squares.parameters) for squares in (one, other)]
    for _ in range(5):
        one.closure()
        optimizers[0].step()
        optimizers[1].step(other.closure)
    torch.testing.assert_close(one.parameters, other.parameters, rtol=0, atol=0)


@every_method
def test_a_step_without_gradients_changes_nothing(build):
    squares = Squares()
    optimizer = build(squares.parameters, weight_decay=0.1)
    before = [p.detach().clone() for p in squares.parameters]
    optimizer.step(lambda: None)
    optimizer.step()
    assert all(p.equal(old) for p, old in zip(squares.parameters, before, strict=True))


@every_method
def test_a_step_with_gradients_of_zero_changes_no_parameter(build):
    squares = Squares()
    optimizer = build(squares.parameters)
    before = [p.detach().clone() for p in squares.parameters]
    for p in squares.parameters:
        p.grad = torch.zeros_like(p)
    optimizer.step()
    assert all(p.equal(old) for p, old in zip(squares.parameters, before, strict=True))


@every_method
def test_a_parameter_without_a_gradient_stays(build):
    """It does not decay either."""
    squares, alone = Squares(), nn.Parameter(torch.ones(3, dtype=torch.float64))
    optimizer = build([*squares.parameters, alone], weight_decay=0.1)
    for _ in range(3):
        optimizer.step(squares.closure)
    assert alone.tolist() == [1.0, 1.0, 1.0]


@every_method
def test_precisions_may_differ_within_an_optimizer(build):
    dtypes = torch.bfloat16, torch.float32, torch.float64
    parameters = [nn.Parameter(torch.ones(4, dtype=dtype)) for dtype in dtypes]
    optimizer = build(parameters, lr=0.1)

    def closure():
        loss = sum(p.double().square().sum() for p in parameters)
        loss.backward()
        return loss

    for _ in range(4):
        optimizer.step(closure)
    assert [p.dtype for p in parameters] == list(dtypes)
    assert all((p < 0.9).all() for p in parameters)
    torch.testing.assert_close(parameters[1].double(), parameters[2], rtol=1e-5, atol=1e-6)


@every_method
def test_the_default_precision_does_not_matter(build):
    ends = []
    for default in (torch.float32, torch.float64):
        torch.set_default_dtype(default)
        try:
            squares = Squares(dtype=torch.float32)
            optimizer = build(squares.parameters)
            for _ in range(3):
                optimizer.step(squares.closure)
        finally:
            torch.set_default_dtype(torch.float32)
        ends.append(squares.parameters)
    torch.testing.assert_close(*ends, rtol=0, atol=0)


TWINS = {
    "SGD": ("bsgd", {}, torch.optim.SGD, {}),
    "SGD, momentum": ("sox", {"alpha": 0.3}, torch.optim.SGD, {"momentum": 0.7, "dampening": 0.7}),
    "Adam": ("soap", {"update": fcco.updates.Adam()}, torch.optim.Adam, {"betas": (0.0, 0.999)}),
    "AMSGrad": (
        "bsgd",
        {"update": fcco.updates.AMSGrad(beta2=0.9)},
        torch.optim.Adam,
        {"betas": (0.0, 0.9), "amsgrad": True},
    ),
    "AdamW": (
        "soap",
        {"update": fcco.updates.Adam(eps=1e-3), "weight_decay": 0.1},
        torch.optim.AdamW,
        {"betas": (0.0, 0.999), "eps": 1e-3, "weight_decay": 0.1},
    ),
}


@pytest.mark.parametrize("name", TWINS)
def test_without_an_outer_function_it_is_torchs_optimizer(name):
    """f(u) = u: the compositional problem is an ordinary one, and so is the method."""
    method, settings, twin, options = TWINS[name]
    ours, theirs = Squares(), Squares()
    first = BY_NAME[method](ours.parameters, lr=0.01, **settings)
    second = twin(theirs.parameters, lr=0.01, **options)
    for _ in range(25):
        first.step(ours.closure)
        second.step(theirs.closure)
        torch.testing.assert_close(ours.parameters, theirs.parameters, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "objective",
    [
        O.Cox(torch.tensor([4.0, 2.0, 2.0, 7.0]), torch.tensor([1, 1, 0, 1])),
        O.AveragePrecision(torch.tensor([1, 0, 1, 0])),
        O.PartialAUC(torch.tensor([1, 0, 1, 0]), temperature=1.0),
        O.PNormPush(torch.tensor([1, 0, 1, 0])),
        O.ListNet(torch.tensor([0, 1, 2, 0]), torch.tensor([4])),
    ],
    ids=lambda objective: type(objective).__name__,
)
def test_an_index_need_not_be_contiguous(objective):
    """torch warns of it in ``searchsorted``, once per process."""
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        index, inputs = torch.tensor([2, 9, 0, 9, 3, 9, 1, 9])[::2], torch.rand(4, 3)
        batches = [objective.batch(inputs, given) for given in (index, index.clone())]
    finally:
        torch.set_warn_always(before)
    model = nn.Linear(3, 1)
    probes = [objective.inner(model, batch) for batch in batches]
    assert probes[0].blocks.equal(probes[1].blocks)
    assert probes[0].values.equal(probes[1].values)
