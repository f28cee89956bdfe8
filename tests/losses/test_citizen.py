"""A criterion lives with the rest of PyTorch: checkpoints, precision, compilers, scalers."""

import copy
import io

import pytest
import torch
from losses.criteria import CASES, survival
from torch import nn
from torch.utils.checkpoint import checkpoint

from fcco import losses as L

# Calls in eval mode and without gradients are what these tests are about; they warn.
pytestmark = pytest.mark.filterwarnings("ignore:.*it is not a validation loss")

ONE = {case.name: case for case in CASES}


def batches(case, seed=0, passes=2):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(passes):
        yield from torch.randperm(case.size, generator=generator).split(7)


def train(model, criterion, optimizer, x, indices):
    """The losses of some steps."""
    values = []
    for index in indices:
        loss = criterion(model(x[index]), index)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        values.append(loss.item())
    return values


def setup(case):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, case.tasks))
    x = torch.randn(case.size, 4)
    return model, case.criterion().float(), torch.optim.Adam(model.parameters(), 0.05), x


@pytest.mark.sweep(3)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_resume_in_the_middle_of_a_pass_is_bit_exact(case):
    steps = list(batches(case))
    for cut in (3, 10):
        model, criterion, optimizer, x = setup(case)
        train(model, criterion, optimizer, x, steps[:cut])
        file = io.BytesIO()
        torch.save([part.state_dict() for part in (model, criterion, optimizer)], file)
        expected = train(model, criterion, optimizer, x, steps[cut:])
        file.seek(0)
        others = setup(case)
        for part, saved in zip(others[:3], torch.load(file), strict=True):
            part.load_state_dict(saved)
        assert train(*others, steps[cut:]) == expected
        assert all(v.isfinite().all() for v in criterion.state_dict().values())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_refreshed_table_is_exact(case):
    model, criterion, optimizer, x = setup(case)
    train(model, criterion, optimizer, x, batches(case))
    criterion.eval()
    with torch.no_grad():
        criterion.refresh(model(x[:5]), torch.arange(5))
        criterion.refresh(model(x))
    assert not criterion.training
    exact = criterion.exact(model(x))
    value = criterion.train()(model(x[:3]), torch.arange(3))
    torch.testing.assert_close(value, exact, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="sample"):
        criterion.eval().refresh(model(x), torch.arange(case.size) + 1)
    assert not criterion.training


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_copy_goes_its_own_way(case):
    model, criterion, optimizer, x = setup(case)
    train(model, criterion, optimizer, x, list(batches(case))[:9])
    twin = copy.deepcopy(criterion)
    before = twin.state_dict()["scores"].clone()
    index = torch.arange(5)
    first = criterion(model(x[index]), index)
    assert twin.scores.equal(before)
    assert twin(model(x[index]), index) == first


@pytest.mark.parametrize("case", CASES, ids=str)
def test_nothing_is_written_in_eval_or_without_gradients(case):
    criterion = case.criterion()
    criterion(case.scores(), torch.arange(45))
    before = copy.deepcopy(criterion.state_dict())
    other, index = case.scores(seed=1), torch.arange(12)
    patched = case.scores()
    patched[index] = other[index]
    expected = criterion.exact(patched)
    values = []
    with torch.no_grad():
        values.append(criterion(other[index], index))
    with torch.inference_mode():
        values.append(criterion(other[index], index))
    criterion.eval()
    scores = other.clone().requires_grad_()
    values.append(criterion(scores[index], index))
    for value in values:
        torch.testing.assert_close(value.detach(), expected.detach(), rtol=1e-10, atol=1e-12)
    for name, tensor in criterion.state_dict().items():
        assert tensor.equal(before[name]), name
    (gradient,) = torch.autograd.grad(values[-1], scores)
    patched.requires_grad_()
    (exact,) = torch.autograd.grad(criterion.exact(patched), patched)
    torch.testing.assert_close(gradient[index], exact[index] * 45 / 12, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("name", ["cox efron", "pauc, steep", "auc", "ndcg at 3"])
def test_a_recomputed_forward_pass_writes_once(name, reentrant):
    case = ONE[name]
    model, criterion, _, x = setup(case)
    x.requires_grad_()  # which reentrant checkpoints need
    plain, twin = copy.deepcopy(model), copy.deepcopy(criterion)
    for index in batches(case):
        loss = checkpoint(
            lambda x, index=index: criterion(model(x), index), x[index], use_reentrant=reentrant
        )
        model.zero_grad()
        loss.backward()
        expected = twin(plain(x[index]), index)
        plain.zero_grad()
        expected.backward()
        assert loss.item() == expected.item()
        for mine, other in zip(model.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, other.grad)
            with torch.no_grad():
                for p in (mine, other):
                    p -= 0.1 * other.grad
        for key, tensor in criterion.state_dict().items():
            assert tensor.equal(twin.state_dict()[key]), key


def test_precision_of_the_table():
    criterion = L.PartialAUCLoss([1, 0, 0], temperature=0.1)
    assert criterion.scores.dtype == torch.float32
    for move, expected in (
        (criterion.half, torch.float32),
        (criterion.double, torch.float64),
        (criterion.bfloat16, torch.float32),
        (lambda: criterion.to("cpu", torch.float64), torch.float64),
        (criterion.float, torch.float32),
    ):
        assert move() is criterion
        assert criterion.scores.dtype == expected
        assert criterion.sums.sums.dtype == torch.float64
    torch.set_default_dtype(torch.float64)
    try:
        assert L.AUCLoss([1, 0]).scores.dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_precision_survives_a_cast():
    """Neither the table nor the sums go through half precision on their way."""
    case = ONE["pauc"]
    criterion = case.criterion().float()
    criterion(case.scores().float(), torch.arange(45))
    before = copy.deepcopy(criterion.state_dict())
    criterion.half()
    for name, tensor in criterion.state_dict().items():
        assert tensor.equal(before[name]), name


@pytest.mark.parametrize("case", CASES, ids=str)
def test_nothing_but_the_table_loses_precision(case):
    criterion, scores = case.criterion().half().float().double(), case.scores().requires_grad_()
    expected = case.criterion().exact(scores)
    assert criterion.exact(scores) == expected
    loss = criterion(scores, torch.arange(45))
    slopes = [torch.autograd.grad(value, scores)[0] for value in (loss, expected)]
    torch.testing.assert_close(*slopes, rtol=1e-12, atol=1e-14)


def test_structure_moves_to_the_device():
    criterion = ONE["ndcg at 3"].criterion().to("meta")
    assert {tensor.device.type for tensor in criterion.buffers()} == {"meta"}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_autocast_is_off_inside(case):
    criterion, twin = case.criterion().float(), case.criterion().float()
    scores = case.scores().float()
    with torch.autocast("cpu", torch.bfloat16):
        first = criterion(scores, torch.arange(45))
    assert first == twin(scores, torch.arange(45))
    with torch.autocast("cpu", torch.bfloat16):
        model = nn.Linear(4, case.tasks)
        outputs = model(torch.randn(6, 4))
        assert outputs.dtype == torch.bfloat16
        loss = criterion(outputs, torch.arange(6))
    loss.backward()
    assert loss.dtype == torch.float32
    assert model.weight.grad.isfinite().all()


def test_a_scaler_scales_and_skips():
    """A skipped step leaves a written score, which is that of the weights as they still are."""
    model, criterion, _, x = setup(ONE["cox efron"])
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    index = torch.arange(9)
    loss = criterion(model(x[index]), index)
    (plain,) = torch.autograd.grad(loss, model[0].weight, retain_graph=True)
    scaler.scale(loss).backward()
    torch.testing.assert_close(model[0].weight.grad, plain * 2**10)
    model[0].weight.grad[0, 0] = torch.inf
    before = copy.deepcopy(model.state_dict())
    scaler.step(optimizer)
    scaler.update()
    assert all(v.equal(before[k]) for k, v in model.state_dict().items())
    torch.testing.assert_close(criterion.scores[index], model(x[index]).detach())


def test_accumulation_and_a_graph_that_is_kept():
    model, criterion, _, x = setup(ONE["ap"])
    criterion(model(x), torch.arange(45))
    index = torch.arange(20)
    (criterion(model(x[:10]), index[:10]) / 2).backward()
    (criterion(model(x[10:20]), index[10:]) / 2).backward()
    parts = model[0].weight.grad.clone()
    model.zero_grad()
    loss = criterion(model(x[:20]), index)
    loss.backward(retain_graph=True)
    torch.testing.assert_close(model[0].weight.grad, parts, rtol=1e-4, atol=1e-7)
    loss.backward()
    torch.testing.assert_close(model[0].weight.grad, 2 * parts, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("case", [c for c in CASES if c.name not in ("dro", "cvar")], ids=str)
def test_attached_where_the_gradient_is_zero(case):
    model, criterion, _, x = setup(case)
    loss = criterion(model(x[:1]), torch.tensor([0]))
    loss.backward()
    assert all(p.grad is not None and not p.grad.any() for p in model.parameters())


def test_a_compiled_model():
    model, criterion, optimizer, x = setup(ONE["auc"])
    compiled = torch.compile(model, backend="aot_eager")
    values = train(compiled, criterion, optimizer, x, batches(ONE["auc"], passes=5))
    assert values[-1] < values[7]


def test_scores_that_need_no_gradient_are_written():
    criterion = L.CoxLoss(*survival())
    loss = criterion(torch.zeros(45), torch.arange(45))
    assert not loss.requires_grad
    assert criterion.seen.all()


def test_it_says_how_large_it_is():
    assert repr(L.AUCLoss(torch.tensor([[1, 0], [0, 1]]))).startswith(
        "AUCLoss(\n  num_samples=2, num_tasks=2"
    )


@pytest.mark.parametrize("case", CASES, ids=str)
def test_two_recomputed_calls_before_one_backward(case):
    """Gradient accumulation beside activation checkpointing: each call has its own gradient."""
    first = case.criterion()
    first(case.scores(), torch.arange(45))
    grads = []
    for wrapped in (False, True):
        criterion = copy.deepcopy(first)
        h = (3 * case.scores(seed=1)[:20]).requires_grad_()

        def call(part, index, wrapped=wrapped, criterion=criterion):
            if wrapped:
                return checkpoint(criterion, part, index, use_reentrant=False)
            return criterion(part, index)

        loss = call(h[:10], torch.arange(10)) + call(h[10:], torch.arange(10, 20))
        loss.backward()
        grads.append((h.grad, criterion.scores.clone(), loss.detach()))
    assert all(a.equal(b) for a, b in zip(*grads, strict=True))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_evaluation_loop_in_inference_mode_refreshes(case):
    """The step after it is the same as after a refresh elsewhere."""
    steps = []
    for mode in (torch.inference_mode, torch.no_grad):
        criterion = case.criterion()
        with mode():
            criterion.refresh(case.scores())
        h = (2 * case.scores(seed=1)[:9]).requires_grad_()
        loss = criterion(h, torch.arange(9))
        loss.backward()
        steps.append((loss.detach(), h.grad, criterion.scores.clone()))
    assert all(a.equal(b) for a, b in zip(*steps, strict=True))


def test_a_refresh_takes_what_forward_takes():
    criterion = L.CoxLoss(*survival())
    with pytest.raises(ValueError, match="scores must be a tensor of floats"):
        criterion.refresh([0.0] * 45)


@pytest.mark.parametrize("build", [
    lambda: L.ContrastiveLoss(8, temperature=0.1),
    lambda: L.ContrastiveLoss(8, temperature=0.1, learned="common"),
    lambda: L.GroupCVaRLoss(3, fraction=0.5), lambda: L.NCALoss(torch.arange(4) % 2),
    lambda: L.CoxLoss([1.0, 2.0], [1, 1]),
], ids=["contrastive", "learned", "cvar", "nca", "cox"])  # fmt: skip
def test_frameworks_mark_all_modules(build):
    """Hugging Face and FSDP2 do, the objective before the loss that contains it."""
    model = torch.nn.ModuleDict({"loss": build()})
    for _ in range(2):
        for module in reversed(list(model.modules())):
            module._is_initialized = True
    with pytest.raises(AttributeError, match="what the table was built from"):
        model["loss"].objective = None


@pytest.mark.parametrize("transformed", [
    lambda loss, h: torch.func.grad(loss)(h), lambda loss, h: torch.func.vjp(loss, h),
    lambda loss, h: torch.func.vmap(loss)(h[None]),
], ids=["grad", "vjp", "vmap"])  # fmt: skip
def test_transforms_are_refused_by_name(transformed):
    """torch asked to report its own limit, of hooks that hide saved tensors."""
    criterion, index = L.AUCLoss([1, 0]), torch.arange(2)
    before = copy.deepcopy(criterion.state_dict())
    with pytest.raises(RuntimeError, match=r"cannot be transformed by torch\.func"):
        transformed(lambda h: criterion(h, index), torch.zeros(2))
    assert all(criterion.state_dict()[name].equal(before[name]) for name in before)
