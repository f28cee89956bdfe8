"""Gradient accumulation: what micro-batches add up to, with the switch and without it."""

import copy

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import fcco
from fcco import losses as L

# Calls in eval mode and without gradients are what these tests are about; they warn.
pytestmark = pytest.mark.filterwarnings("ignore:.*it is not a validation loss")

BETA = 0.3


def square(u):
    return u[..., 0].square()


def warm_means():
    """A loss f(u) = u^2 of one mean, with u = 2, and a weight w = 3 whose statistics are w x."""
    criterion = L.MeansLoss(square, 1, beta=BETA).double()
    w = torch.tensor(3.0, dtype=torch.float64, requires_grad=True)
    criterion(torch.full((1, 1), 2.0, dtype=torch.float64, requires_grad=True))
    return criterion, w, torch.optim.SGD([w], lr=0.0)


def test_a_window_is_one_step_by_hand():
    """u_0 = 2; the mean of w x over all four samples is 7.5, in two batches 4.5 and 10.5."""
    criterion, w, optimizer = warm_means()
    criterion.accumulate = True
    x = torch.tensor([[1.0], [2.0], [3.0], [4.0]], dtype=torch.float64)
    for part in x.split(2):
        (criterion(w * part) / 2).backward()
        assert criterion.read(torch.tensor([0])).item() == 2.0  # not before the optimizer steps
    assert w.grad.item() == pytest.approx(2 * 2.0 * 2.5, rel=1e-14)  # f'(u_0) times the mean of x
    optimizer.step()
    u = (1 - BETA) * 2.0 + BETA * 7.5
    assert criterion.read(torch.tensor([0])).item() == pytest.approx(u, rel=1e-14)


def test_a_copy_has_no_part_in_an_open_window():
    """Each of the two closes a window with the batches that it has seen itself."""
    criterion, w, optimizer = warm_means()
    criterion.accumulate = True
    criterion(w * torch.tensor([[1.0]], dtype=torch.float64))
    twin = copy.deepcopy(criterion)
    twin(w * torch.tensor([[5.0]], dtype=torch.float64))
    optimizer.step()
    for one, mean in ((criterion, 3.0), (twin, 15.0)):
        u = (1 - BETA) * 2.0 + BETA * mean
        assert one.read(torch.tensor([0])).item() == pytest.approx(u, rel=1e-14)


def test_a_block_whose_noise_is_unknown_teaches_nothing():
    criterion = L.TableLoss(fcco.objectives.GroupDRO(torch.arange(2), temperature=1.0))
    values = torch.ones(2, 1, requires_grad=True)
    criterion(fcco.Probe(torch.arange(2), values))
    criterion.accumulate = True
    criterion(fcco.Probe(torch.tensor([0]), 2 * values[:1], noise=torch.full((1, 1), 0.5)))
    criterion(fcco.Probe(torch.tensor([1]), 3 * values[1:]))
    torch.optim.SGD([values], lr=0.0).step()
    steps, rows, *_ = criterion.table.gain.tolist()
    assert (steps, rows) == (2, 1)


def groups_of(parts):
    """Losses of samples with their groups; every group has equally many samples in a part."""
    torch.manual_seed(3)
    x = torch.randn(12, 4, dtype=torch.float64)
    if parts == "common":
        groups = torch.tensor([0, 0, 1, 1, 2, 2] * 2)
    else:  # each group in one part
        groups = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5])
    return x, groups


def gradient(criterion, model, x, groups, sizes):
    """The accumulated gradient over parts of ``sizes`` samples, and the table after a step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    for part, group in zip(x.split(sizes), groups.split(sizes), strict=True):
        loss = criterion(model(part).square().squeeze(1), group)
        (loss * sizes / len(x)).backward()
    optimizer.step()
    return model.weight.grad.clone(), criterion.table.rows.clone()


@pytest.mark.parametrize("beta", [0.3, 0.9, "auto"])
@pytest.mark.parametrize("parts", ["common", "own"])
@pytest.mark.parametrize("warm", [True, False])
def test_micro_batches_add_up(beta, parts, warm):
    x, groups = groups_of(parts)
    torch.manual_seed(0)
    model = nn.Linear(4, 1).double()
    criterion = L.GroupDROLoss(6, temperature=1.0, beta=beta).double()
    if warm:
        criterion(model(x[:6] + 1).square().squeeze(1).repeat(2), torch.arange(6).repeat(2))
    criterion.accumulate = True
    results = [
        gradient(copy.deepcopy(criterion), copy.deepcopy(model), x, groups, sizes)
        for sizes in (12, 6)
    ]
    (one, rows), (two, other_rows) = results
    torch.testing.assert_close(other_rows, rows, rtol=1e-13, atol=0)
    if warm or parts == "own":  # an unvisited row has a slope at its part's fresh value
        torch.testing.assert_close(two, one, rtol=1e-12, atol=1e-14)


def test_without_the_switch_they_do_not_add_up():
    """The measured differences that the guide tells: the second part sees what the first wrote."""
    x, groups = groups_of("common")
    torch.manual_seed(0)
    model = nn.Linear(4, 1).double()
    for beta in (0.3, 0.9):
        criterion = L.GroupDROLoss(6, temperature=1.0, beta=beta).double()
        criterion(model(x[:6] + 1).square().squeeze(1).repeat(2), torch.arange(6).repeat(2))
        one, two = (
            gradient(copy.deepcopy(criterion), copy.deepcopy(model), x, groups, sizes)[0]
            for sizes in (12, 6)
        )
        assert (two - one).norm() > 0.01 * one.norm()


def test_score_losses_add_up_with_a_fresh_table():
    torch.manual_seed(0)
    times, events, x = torch.rand(12), torch.rand(12) < 0.7, torch.randn(12, 3)
    model = nn.Linear(3, 1)
    gradients = []
    for sizes in (12, 3):
        criterion, twin = L.CoxLoss(times, events), copy.deepcopy(model)
        criterion.refresh(twin(x).squeeze(1).detach())
        for index in torch.arange(12).split(sizes):
            loss = criterion(twin(x[index]).squeeze(1), index)
            (loss * sizes / 12).backward()
        gradients.append(twin.weight.grad)
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-5, atol=1e-7)


def test_recomputation_and_evaluation_leave_a_window_alone():
    results = []
    for through in (
        lambda f, x: f(x),
        lambda f, x: checkpoint(f, x, use_reentrant=False),
        lambda f, x: checkpoint(f, x, use_reentrant=True),
    ):
        criterion, w, optimizer = warm_means()
        criterion.accumulate = True
        for k in range(2):
            x = torch.full((2, 1), k + 1.0, dtype=torch.float64, requires_grad=True)
            through(lambda x, c=criterion, w=w: c(w * x), x).backward()
            with torch.no_grad():
                criterion(w * x)
            criterion.eval()
            criterion(w * x)
            criterion.train()
        optimizer.step()
        results.append((w.grad.item(), criterion.read(torch.tensor([0])).item()))
    assert results[0] == results[1] == results[2]


def test_an_error_inside_a_window_loses_nothing():
    criterion, w, optimizer = warm_means()
    criterion.accumulate = True
    criterion(w * torch.ones(2, 1, dtype=torch.float64)).backward()
    with pytest.raises(FloatingPointError):
        criterion(w * torch.full((2, 1), torch.nan, dtype=torch.float64))
    criterion(w * torch.full((2, 1), 2.0, dtype=torch.float64)).backward()
    optimizer.step()
    u = (1 - BETA) * 2.0 + BETA * 4.5
    assert criterion.read(torch.tensor([0])).item() == pytest.approx(u, rel=1e-14)


def test_a_loaded_table_is_not_overwritten_by_an_open_window():
    criterion, w, optimizer = warm_means()
    saved = copy.deepcopy(criterion.state_dict())
    criterion.accumulate = True
    criterion(w * torch.ones(2, 1, dtype=torch.float64)).backward()
    with pytest.raises(RuntimeError, match="other labels"):
        criterion.load_state_dict(saved | {"fingerprint": saved["fingerprint"] + 1})
    assert criterion._window is not None, "an error changes nothing"
    criterion.load_state_dict(saved)
    optimizer.step()
    assert all(saved[key].equal(value) for key, value in criterion.state_dict().items())


def test_an_optimizers_step_ends_windows_once():
    """A step without a window writes nothing, and a loss that is gone is not held."""
    criterion, w, optimizer = warm_means()
    criterion.accumulate = True
    criterion(w * torch.ones(2, 1, dtype=torch.float64)).backward()
    optimizer.step()
    before = criterion.table.rows.clone()
    optimizer.step()
    assert criterion.table.rows.equal(before)
    assert isinstance(criterion, fcco.losses.MeansLoss)


@pytest.mark.parametrize("concordance", [False, True])
@pytest.mark.parametrize("looking", [False, True])
def test_batches_of_a_first_window_are_about_one_mean(concordance, looking, recwarn):
    """Moments about the mean of each batch, joined, would lose how far apart the batches are.

    Nothing that is only looked at in between is taken for the first batch.
    """
    torch.manual_seed(0)
    x = torch.cat([torch.randn(10) + 100, torch.randn(10) - 100])
    y = x + torch.randn(20) + 5
    criterion = L.CorrelationLoss(concordance=concordance, beta=1.0)
    criterion.accumulate = True
    w = torch.zeros(1, requires_grad=True)
    for part in (slice(0, 10), slice(10, 20)):
        criterion(x[part] + w, y[part]).backward()
        if looking:
            criterion.eval()(x[10:] + 1e3, y[10:])
            criterion.train().exact(x + 1e3, y)
    torch.optim.SGD([w], lr=0.0).step()
    value = criterion.objective.outer(criterion.table.rows, torch.arange(1)).item()
    expected = L.CorrelationLoss(concordance=concordance).exact(x, y).item()
    assert value == pytest.approx(expected, rel=1e-6)
    twin = L.CorrelationLoss(concordance=concordance, beta=1.0)
    twin.load_state_dict(criterion.state_dict())
    assert twin(x + 7, y + 7).item() == pytest.approx(expected, rel=1e-5), "and goes on"
    recwarn.clear()
