"""What trainers do with a criterion beside training: validate, evaluate, load for inference."""

import io
import math
import tracemalloc
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
    with pytest.warns(UserWarning, match="not a validation loss") as caught:
        if way == "eval":
            criterion.eval()(*inputs)
        else:
            with getattr(torch, way)():
                criterion(*inputs)
    assert len(caught) == 1
    if case.cls.__module__.startswith("fcco."):
        assert caught[0].filename == __file__, "it names the line of the user"


@every_loss
def test_the_warning_names_what_to_use(case):
    criterion = case.build().eval()
    with pytest.warns(UserWarning) as caught:
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
