"""The bare network work that each method cannot do without."""

import torch
from torch.autograd import forward_ad
from torch.func import functional_call


class Work:
    """Forward and backward passes of a case, without any optimizer.

    ``whole`` says whether the objective's inner values belong to it, or the network alone does.
    The backward pass starts from a fixed cotangent.
    """

    def __init__(self, network, case, *, whole):
        self._network = network
        self._case = case
        self._whole = whole
        with torch.no_grad():
            self._cotangent = torch.randn_like(self._values(network))
        self._tangents = {name: torch.randn_like(p) for name, p in network.named_parameters()}

    def _values(self, model):
        if self._whole:
            return self._case.objective.inner(model, self._case.batch).values
        return model(self._case.batch.inputs)

    def repeated(self, pulled, looked=0):
        """``pulled`` forward and backward passes, and ``looked`` forward passes without graph."""

        def run():
            for _ in range(pulled):
                self._values(self._network).backward(self._cotangent)
            self._network.zero_grad()
            with torch.no_grad():
                for _ in range(looked):
                    self._values(self._network)

        return run

    def with_derivative(self):
        """One forward pass that carries tangents along, and the backward pass."""

        def run():
            with forward_ad.dual_level():
                params = {
                    name: forward_ad.make_dual(p, self._tangents[name])
                    for name, p in self._network.named_parameters()
                }
                dual = self._values(lambda x: functional_call(self._network, params, x))
                values = forward_ad.unpack_dual(dual).primal
            values.backward(self._cotangent)
            self._network.zero_grad()

        return run
