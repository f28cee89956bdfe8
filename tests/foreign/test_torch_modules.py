"""What torch expects of its own modules, asked of every loss.

The properties are those of PyTorch's ``test/test_modules.py``. The wheel does not contain that
file; ``test_upstream_files`` runs it itself where a source tree is at hand.
"""

import copy
import io

import pytest
import torch
from foreign.loss_cases import CASES, LABELS, TIMES, LossCase
from torch import nn

from fcco import losses as L

NOT_GIVEN = {
    "factory_kwargs": (
        "A loss has no device= and dtype= arguments: it is built from labels on the CPU, moves by "
        ".to(), and keeps what must be exact in float64."
    ),
    "device_ctx_init": (
        "Under torch.device('meta') labels have no values, and the order of the samples, the "
        "number of events and the fingerprint are values. Losses without labels can be built."
    ),
    "to_empty": (
        "A table on the meta device is lost, with what it was built from: leaving it is an error "
        "instead of a table of arbitrary numbers."
    ),
    "forward": (
        "Of the buffers the table alone follows .to(dtype). Running sums, sample weights and all "
        "of CorrelationLoss stay in float64, statistics that choose beta in float32."
    ),
    "if_train_and_eval_modes_differ": (
        "The test deletes the attribute 'training' and reads its name in the error. A loss reads "
        "it in a property, of which nn.Module reports the property's name."
    ),
    "memory_format": (
        "A gradient may be a strided view, of DiceLoss and CorrelationLoss; .grad of a parameter "
        "is contiguous all the same."
    ),
    "to": (
        "The test casts every buffer to floats by hand, also the mask of the rows that were met; "
        ".to() casts none but those of floats."
    ),
    "cpu_gpu_parity": "There is no accelerator where the tests run.",
    "multiple_device_transfer": "There is no accelerator where the tests run.",
    "gradgrad": "Slopes are constants of the graph: a second derivative is an error.",
    "check_inplace": "No loss has an argument inplace=.",
}
"""What torch expects of a module and a loss does not give, by the name of PyTorch's test."""

# In eval mode and without gradients a loss warns; the value is looked at all the same.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*it is not a validation loss"),
    pytest.mark.sweep(3),
]

WITHOUT_LABELS = (L.DROLoss, L.CVaRLoss, L.ContrastiveLoss, L.MeansLoss, L.TableLoss)

every_loss = pytest.mark.parametrize("case", CASES, ids=str)
modes = pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])


def test_every_loss_has_a_case():
    covered = {cls.__name__ for case in CASES for cls in case.cls.__mro__}
    assert set(L.__all__) <= covered
    assert {name for name in L.__all__ if name not in {case.cls.__name__ for case in CASES}} == {
        "RowLoss",  # abstract
        "TableLoss",  # in the form of ProbedLoss
    }


def gradients(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    wanted = [*module.parameters(), *(part for part in inputs if part.requires_grad)]
    found = torch.autograd.grad(module(*inputs), wanted, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(wanted, found, strict=True)]


def assert_equal_states(first: nn.Module, second: nn.Module) -> None:
    expected = second.state_dict()
    assert first.state_dict().keys() == expected.keys()
    for name, tensor in first.state_dict().items():
        assert tensor.dtype == expected[name].dtype, name
        assert tensor.equal(expected[name]), name


@every_loss
@modes
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_forward_is_a_scalar_of_the_inputs_precision_and_deterministic(case, training, dtype):
    inputs = case.call_inputs(dtype)
    values = []
    for _ in range(2):
        module = case.build(dtype).train(training)
        values += [module(*inputs), module(*inputs)]
    first, again, twin, _ = values
    assert first.shape == ()
    assert first.dtype == dtype
    assert twin.equal(first)
    torch.testing.assert_close(again, first)
    if training:
        table = module.get_buffer(module._table)
        stays_double = isinstance(module, L.CorrelationLoss)
        assert table.dtype == (torch.float64 if stays_double else dtype)


@every_loss
@modes
def test_the_gradient_is_the_derivative_of_the_value(case, training):
    module, inputs = case.build().train(training), case.call_inputs(requires_grad=True)
    parameters = tuple(module.parameters())
    assert torch.autograd.gradcheck(
        lambda *given: module(*given[: len(inputs)]),
        (*inputs, *parameters),
        rtol=1e-5,
        atol=1e-7,
    )


@every_loss
def test_a_second_derivative_is_an_error(case):
    module, inputs = case.build(), case.call_inputs(requires_grad=True)
    wanted = [part for part in inputs if part.requires_grad]
    slopes = torch.autograd.grad(module(*inputs), wanted, create_graph=True)
    with pytest.raises(RuntimeError, match="cannot be differentiated twice"):
        torch.autograd.grad(sum(slope.sum() for slope in slopes), wanted)


@every_loss
def test_inputs_are_never_written(case):
    module, inputs = case.build(), case.call_inputs(requires_grad=True)
    versions, before = [part._version for part in inputs], copy.deepcopy(inputs)
    module(*inputs).backward()
    assert versions == [part._version for part in inputs]
    assert all(a.equal(b) for a, b in zip(inputs, before, strict=True))


@pytest.fixture
def every_warning():
    """Warnings that torch gives once per process are given every time."""
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(before)


def spread(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers with a stride of 2 along the last dimension."""
    spaced = torch.repeat_interleave(tensor.detach(), 2, dim=-1)[..., ::2]
    assert not spaced.is_contiguous()
    return spaced.requires_grad_(tensor.requires_grad)


@every_loss
@modes
@pytest.mark.usefixtures("every_warning")
def test_inputs_need_not_be_contiguous(case, training):
    found = []
    for inputs in (case.call_inputs(requires_grad=True), case.call_inputs(requires_grad=True)):
        given = tuple(map(spread, inputs)) if found else inputs
        module = case.build().train(training)
        found.append([module(*given).detach(), *gradients(module, given)])
    torch.testing.assert_close(*found)


@every_loss
@pytest.mark.usefixtures("every_warning")
def test_what_a_loss_is_built_from_need_not_be_contiguous(case):
    args = [spread(part) if isinstance(part, torch.Tensor) else part for part in case.args]
    inputs = case.call_inputs()
    module = case.cls(*args, **case.kwargs).double()
    assert module(*inputs).equal(case.build()(*inputs))


@pytest.mark.parametrize("case", [c for c in CASES if c.name.startswith("Dice")], ids=str)
def test_memory_formats(case):
    inputs = case.call_inputs(requires_grad=True)
    dense, _ = inputs
    last = {4: torch.channels_last, 5: torch.channels_last_3d}[dense.ndim]
    found = []
    for formats in (torch.contiguous_format, last):
        module = case.build().to(memory_format=formats)
        given = (dense.detach().to(memory_format=formats).requires_grad_(), inputs[1])
        found.append([module(*given).detach(), *gradients(module, given)])
    torch.testing.assert_close(*found)


@every_loss
def test_it_can_be_printed(case):
    module = case.build()
    assert type(module).__name__ in repr(module) == str(module)
    assert "tensor(" not in repr(module)


@every_loss
@modes
@pytest.mark.parametrize("way", ["pickle", "deepcopy", "state", "assigned state"])
def test_save_and_load(case, training, way):
    """After a call, a copy goes on as the original does, bit by bit."""
    module, inputs = case.build(), case.call_inputs()
    module(*inputs)
    module.train(training)
    if way == "deepcopy":
        twin = copy.deepcopy(module)
    else:
        file = io.BytesIO()
        torch.save(module if way == "pickle" else module.state_dict(), file)
        file.seek(0)
        twin = torch.load(file, weights_only=way != "pickle")
    if "state" in way:
        state, twin = twin, case.build().train(training)
        twin.load_state_dict(state, assign=way == "assigned state")
    assert_equal_states(twin, module)
    other = tuple(
        part.flip(0).contiguous() if part.is_floating_point() else part for part in inputs
    )
    assert twin(*other).equal(module(*other))
    assert_equal_states(twin, module)


@every_loss
def test_a_table_is_written_in_training_alone(case):
    module, inputs = case.build(), case.call_inputs(requires_grad=True)
    fresh = copy.deepcopy(module)
    module.eval()(*inputs).backward()
    with torch.no_grad():
        module.train()(*inputs)
    assert_equal_states(module, fresh)
    module(*inputs)
    assert not module.get_buffer(module._table).equal(fresh.get_buffer(module._table))


@every_loss
@pytest.mark.parametrize("swap", [True, False])
def test_moving_keeps_parameters(case, swap):
    """The parameters stay the same objects, with their gradients in the new precision."""
    module, inputs = case.build(), case.call_inputs(requires_grad=True)
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(swap)
    try:
        module(*inputs).backward()
        ids = [id(p) for p in module.parameters()]
        for dtype in (torch.float32, torch.float64):
            assert module.to(dtype) is module
            assert [id(p) for p in module.parameters()] == ids
            assert all(p.dtype == p.grad.dtype == dtype for p in module.parameters())
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)
    assert module(*inputs).isfinite()


@every_loss
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_inputs_of_half_precision_have_gradients_of_half_precision(case, dtype):
    module, inputs = case.build(dtype), case.call_inputs(dtype, requires_grad=True)
    value = module(*inputs)
    assert value.dtype == torch.float32
    value.backward()
    for part in inputs:
        if part.requires_grad:
            assert part.grad.dtype == dtype
            assert part.grad.isfinite().all()


@every_loss
def test_hooks_and_functional_calls(case):
    module, inputs = case.build(), case.call_inputs(requires_grad=True)
    twin, seen = copy.deepcopy(module), []
    module.register_forward_pre_hook(lambda *_: seen.append("before"))
    module.register_forward_hook(lambda m, given, value: value * 2)
    module.register_full_backward_hook(lambda m, into, out: seen.append("backward"))
    tensors = dict(twin.named_parameters()) | dict(twin.named_buffers())
    expected = torch.func.functional_call(twin, tensors, inputs)
    value = module(*inputs)
    value.backward()
    torch.testing.assert_close(value, 2 * expected)
    assert seen == ["before", "backward"]


# What a loss does not give is refused, and not given in silence -----------------------------------


@every_loss
def test_neither_device_nor_dtype_are_arguments(case):
    for name, value in (("device", "cpu"), ("dtype", torch.float32)):
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
            case.cls(*case.args, **case.kwargs, **{name: value})


@every_loss
def test_the_meta_device(case):
    """A loss without labels can be built there; none comes back from there."""
    if isinstance(case.build(), WITHOUT_LABELS):
        with torch.device("meta"):
            module = case.cls(*case.args, **case.kwargs)
        assert {part.device.type for part in module.state_dict().values()} == {"meta"}
    else:
        # NotImplementedError is a RuntimeError.
        with pytest.raises(RuntimeError, match="meta"), torch.device("meta"):
            case.cls(*case.args, **case.kwargs)
    module = case.build().to("meta")
    with pytest.raises(NotImplementedError, match="cannot leave the meta device"):
        module.to_empty(device="cpu")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: L.AUCLoss(LABELS + 5), "labels"),
        (lambda: L.CoxLoss(TIMES, LABELS[:3]), "events"),
        (lambda: L.PartialAUCLoss(LABELS, temperature=0.0), "temperature"),
        (lambda: L.ContrastiveLoss(0, temperature=1.0), "num_samples"),
        (lambda: L.GroupCVaRLoss(3, fraction=2.0), "fraction"),
        (lambda: L.F1Loss(0), "num_tasks"),
        (lambda: L.MeansLoss(torch.sum, 3, beta=2.0), "beta"),
    ],
)
def test_errors_of_the_constructor_name_the_argument(build, message):
    with pytest.raises(ValueError, match=message):
        build()


@every_loss
def test_an_error_in_a_call_leaves_nothing_behind(case: LossCase):
    module, inputs = case.build(), case.call_inputs()
    module(*inputs)
    before = copy.deepcopy(module)
    for part, spoiled in enumerate(inputs):
        given = list(inputs)
        if spoiled.is_floating_point():
            given[part] = spoiled * torch.nan
        else:
            given[part] = spoiled + 100
        with pytest.raises((ValueError, FloatingPointError)):
            module(*given)
        assert_equal_states(module, before)
