"""What trainers do with a criterion beside training: validate, evaluate, load for inference."""

import contextlib
import io
import math
import warnings

import pytest
import torch
from foreign.loss_cases import CASES
from torch import nn
from torch.utils.checkpoint import checkpoint

from fcco import losses as L

every_loss = pytest.mark.parametrize("case", CASES, ids=str)


# Validation ---------------------------------------------------------------------------------------


@every_loss
@pytest.mark.parametrize("way", ["eval", "no_grad", "inference_mode"])
def test_the_obvious_validation_step_warns(case, way):
    """The criterion of the training set on validation batches has labels and values of training."""
    criterion, inputs = case.build(), case.call_inputs()
    criterion(*inputs)
    mode = contextlib.nullcontext() if way == "eval" else getattr(torch, way)()
    criterion.train(way != "eval")
    with mode, pytest.warns(UserWarning, match="not a validation loss") as caught:
        criterion(*inputs)
    assert len(caught) == 1
    if case.cls.__module__.startswith("fcco."):
        assert caught[0].filename == __file__, "it names the line of the user"


@every_loss
def test_the_warning_names_what_to_use(case):
    criterion = case.build().eval()
    with pytest.warns(UserWarning, match="not a validation loss") as caught:
        criterion(*case.call_inputs())
    message = str(caught[0].message)
    assert type(criterion).__name__ in message
    if isinstance(criterion, L.ScoreLoss | L.ContrastiveLoss | L.NCALoss):
        assert "criterion.objective.on(" in message
        assert hasattr(criterion.objective, "on")
    elif not isinstance(criterion, L.TableLoss):
        assert "criterion.exact(" in message
        assert hasattr(criterion, "exact")


@every_loss
def test_training_does_not_warn(case):
    """Nor does a refreshed table, or a forward pass that is computed again."""
    criterion, inputs = case.build(), case.call_inputs(requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        criterion(*inputs).backward()
        for reentrant in (True, False):  # the first passes of a reentrant one have no gradients
            checkpoint(criterion, *inputs, use_reentrant=reentrant).backward()
        if isinstance(criterion, L.ScoreLoss):
            with torch.no_grad():
                criterion.eval().refresh(*inputs)


def test_a_validation_loop_is_told_once():
    """As for any warning of Python: once for each line, whatever the number of batches."""
    criterion = L.AUCLoss(torch.tensor([1, 0, 1, 0])).eval()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for k in range(4):
            criterion(torch.zeros(1), torch.tensor([k]))
    assert len(caught) == 1


# The exact value ----------------------------------------------------------------------------------


@every_loss
def test_every_loss_has_the_exact_value(case):
    """A first batch of all samples, in their order and with beta = 1, is the whole data set."""
    criterion = case.build()
    if isinstance(criterion, L.TableLoss):
        assert not hasattr(criterion, "exact"), "fcco.data.exact_value has the model"
        return
    inputs = case.call_inputs(requires_grad=True)
    knows_samples = isinstance(criterion, L.ScoreLoss | L.ContrastiveLoss | L.NCALoss)
    if knows_samples:
        index = inputs[-1]
        ordered = [part[index.argsort()] for part in inputs[:-1]]
        exact = criterion.exact(*ordered)
    else:
        exact = criterion.exact(*inputs)
    weighted = getattr(criterion, "sample_weight", None) is not None
    loss = criterion(*inputs)
    torch.testing.assert_close(loss, exact, rtol=1e-10, atol=1e-12)
    if not weighted:
        slopes = [torch.autograd.grad(value, inputs[0])[0] for value in (loss, exact)]
        torch.testing.assert_close(*slopes, rtol=1e-8, atol=1e-10)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("two_way", [False, True])
def test_exact_contrastive_value_is_that_of_loops(two_way):
    N, T = 13, 0.3
    views = torch.randn(2, N, 4, generator=generator(), dtype=torch.float64)
    cosine = torch.nn.functional.cosine_similarity(views[0][:, None], views[1][None], dim=2)
    total = 0.0
    for s in (cosine, cosine.T)[: 1 + two_way]:
        for i in range(N):
            others = [math.exp((s[i, j] - s[i, i]) / T) for j in range(N) if j != i]
            total += T * math.log(sum(others) / (N - 1))
    criterion = L.ContrastiveLoss(N, temperature=T, two_way=two_way)
    found = criterion.exact(*views).item()
    assert found == pytest.approx(total / (N * (1 + two_way)), rel=1e-10)
    other = criterion.objective.on(5)
    assert other.exact(*views[:, :5]).item() != pytest.approx(found)


@pytest.mark.parametrize("fraction", [None, 0.5])
def test_exact_group_value_is_that_of_loops(fraction):
    losses = torch.rand(30, generator=generator(), dtype=torch.float64)
    groups = torch.randint(4, (30,), generator=generator(1))
    means = [losses[groups == g].mean().item() for g in range(4)]
    if fraction is None:
        criterion, T = L.GroupDROLoss(4, temperature=0.7), 0.7
        expected = sum(T * (math.exp(u / T) - 1) for u in means) / 4
    else:
        criterion, T = L.GroupCVaRLoss(4, fraction=fraction), 0.1
        costs = [T * math.log1p(math.exp(u / T)) / fraction for u in means]  # the threshold is 0
        expected = sum(costs) / 4
    assert criterion.exact(losses, groups).item() == pytest.approx(expected, rel=1e-6)
    with pytest.raises(ValueError, match=r"groups \[3\] have no sample"):
        criterion.exact(losses[groups < 3], groups[groups < 3])


@pytest.mark.parametrize("name", ["contrastive", "nca"])
def test_memory_of_an_exact_value_is_bounded(name):
    """Neither the value nor its gradient keeps all N^2 comparisons."""
    N = 2500
    points = torch.randn(N, 4, generator=generator(), requires_grad=True)
    if name == "contrastive":
        criterion, views = L.ContrastiveLoss(N, temperature=0.5), (points, points.flip(1))
    else:
        criterion, views = L.NCALoss(torch.arange(N) % 5, temperature=5.0), (points,)
    kept = 0

    def count(tensor):
        nonlocal kept
        kept += tensor.numel() * tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        value = criterion.exact(*views)
    assert kept < N * N, "bytes; one matrix of comparisons has eight times as many"
    (slope,) = torch.autograd.grad(value, points)
    direction = torch.randn(N, 4, generator=generator(1))
    with torch.no_grad():
        ends = [
            criterion.exact(*(view + h * part for view, part in zip(views, parts, strict=True)))
            for h, parts in ((1e-3, shifts(name, direction)), (-1e-3, shifts(name, direction)))
        ]
    expected = (ends[0] - ends[1]).item() / 2e-3
    assert (slope * direction).sum().item() == pytest.approx(expected, rel=1e-2)


def shifts(name, direction):
    return (direction, direction.flip(1)) if name == "contrastive" else (direction,)


# Loading for inference ----------------------------------------------------------------------------


class Scorer(nn.Module):
    """A model that holds its criterion, or none where nothing is trained."""

    def __init__(self, labels=None):
        super().__init__()
        self.net = nn.Linear(3, 1)
        self.criterion = None if labels is None else L.AUCLoss(labels)


def test_a_checkpoint_loads_without_the_training_labels():
    labels = torch.tensor([1, 0, 1, 0, 0])
    trained, x = Scorer(labels), torch.randn(5, 3)
    trained.criterion(trained.net(x), torch.arange(5)).backward()
    file = io.BytesIO()
    torch.save(trained.state_dict(), file)
    file.seek(0)
    state = torch.load(file)
    model = Scorer()
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not missing, "every weight of the model was in the checkpoint"
    assert unexpected
    assert all(name.startswith("criterion.") for name in unexpected)
    assert model.net(x).equal(trained.net(x))
    with pytest.raises(RuntimeError, match="Unexpected key"):
        Scorer().load_state_dict(state)
    with pytest.raises(RuntimeError, match=r"without a criterion and with strict=False"):
        Scorer(1 - labels).load_state_dict(state, strict=False)


def test_a_checkpoint_of_lightning_loads_without_the_training_labels(tmp_path):
    lightning = pytest.importorskip("pytorch_lightning")
    x, labels = torch.randn(8, 3), torch.arange(8) % 2

    class Module(lightning.LightningModule):
        def __init__(self, labels=None):
            super().__init__()
            self.net = nn.Linear(3, 1)
            self.criterion = None if labels is None else L.AUCLoss(labels)

        def training_step(self, batch, step):
            return self.criterion(self.net(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.net.parameters(), 0.1)

    trained = Module(labels)
    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    data = torch.utils.data.TensorDataset(x, torch.arange(8))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's advice on workers
        trainer.fit(trained, torch.utils.data.DataLoader(data, batch_size=4))
        trainer.save_checkpoint(tmp_path / "last.ckpt")
        loaded = Module.load_from_checkpoint(tmp_path / "last.ckpt", strict=False)
    assert loaded.net(x).equal(trained.net(x))
    assert loaded.criterion is None
