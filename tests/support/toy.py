"""A small compositional problem with simple inner values, slopes and exact gradient."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fcco.problem.objective import Objective
from fcco.problem.probe import Probe


@dataclass(frozen=True)
class Draw:
    """The random choices of one step: blocks, and for each two independent sets of samples."""

    blocks: Tensor
    samples: Tensor
    pair: Tensor


class Toy(Objective):
    """g_i(w) = (1/n) sum_j model(x_ij) in R^p;  f_i(u) = sum_k c_ik (sin u_k + u_k^2 / 2).

    With ``affine`` the sine is left out, so that the slope c_ik u_k is affine. With ``box`` the
    table is kept in [-box, box].
    """

    def __init__(
        self,
        num_blocks: int = 6,
        inner_dim: int = 1,
        *,
        inner_size: int = 5,
        features: int = 3,
        affine: bool = False,
        box: float | None = None,
        seed: int = 0,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        self.num_blocks = num_blocks
        self.inner_dim = inner_dim
        self.inner_size = inner_size
        self.affine = affine
        self.box = box
        generator = torch.Generator().manual_seed(seed)
        shape = (num_blocks, inner_size, features)
        self.x = torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
        weights = torch.rand((num_blocks, inner_dim), generator=generator, dtype=torch.float64)
        self.c = (0.5 + weights).to(dtype)

    def inner(self, model: Callable[[Tensor], Tensor], batch: Draw) -> Probe:
        """Means over the drawn samples; if slopes are affine, over the second draw as ``pair``."""
        outputs = self.outputs(model, batch.blocks, batch.samples)
        count = batch.samples.shape[1]
        spread = outputs.detach().std(1) if count > 1 else torch.full_like(outputs[:, 0], torch.nan)
        return Probe(
            batch.blocks,
            outputs.mean(1),
            samples=count,
            pair=self.values(model, batch.blocks, batch.pair) if self.affine else None,
            noise=spread.detach() / count**0.5,
        )

    def values(self, model: Callable[[Tensor], Tensor], blocks: Tensor, samples: Tensor) -> Tensor:
        """(1/s) sum of model(x_ij) over the drawn j, for each block: (B1, p)."""
        return self.outputs(model, blocks, samples).mean(1)

    def outputs(self, model: Callable[[Tensor], Tensor], blocks: Tensor, samples: Tensor) -> Tensor:
        """model(x_ij) of the drawn j, for each block: (B1, s, p)."""
        inputs = self.x[blocks.unsqueeze(1), samples]
        return model(inputs.flatten(0, 1)).view(*samples.shape, self.inner_dim)

    def everything(self, blocks: Tensor | None = None) -> Draw:
        """The draw that contains every sample of ``blocks`` (default: all) once."""
        blocks = torch.arange(self.num_blocks) if blocks is None else blocks
        samples = torch.arange(self.inner_size).expand(len(blocks), -1)
        return Draw(blocks, samples, samples)

    def draw(self, blocks_per_step: int, samples: int, generator: torch.Generator) -> Draw:
        """A fresh sample: distinct blocks, inner samples with replacement."""
        blocks = torch.randperm(self.num_blocks, generator=generator)[:blocks_per_step]
        size = (2, blocks_per_step, samples)
        first, second = torch.randint(self.inner_size, size, generator=generator)
        return Draw(blocks, first, second)

    def outer(self, u: Tensor, blocks: Tensor) -> Tensor:
        """f_i(u)."""
        smooth = u.square() / 2
        return (self.c[blocks] * (smooth if self.affine else smooth + u.sin())).sum(1)

    def slope(self, u: Tensor, blocks: Tensor) -> Tensor:
        """The gradient of f_i, by hand."""
        return self.c[blocks] * (u if self.affine else u + u.cos())

    def feasible(self, u: Tensor, blocks: Tensor) -> Tensor:
        """The box, if there is one."""
        return u if self.box is None else u.clamp(-self.box, self.box)


def make_model(kind: str, inner_dim: int, *, features: int = 3, seed: int = 0) -> nn.Sequential:
    """A linear model or a small network in float64, the same for the same seed."""
    layers: dict[str, list[nn.Module]] = {
        "linear": [nn.Linear(features, inner_dim)],
        "network": [nn.Linear(features, 4), nn.Tanh(), nn.Linear(4, inner_dim)],
        "batchnorm": [
            nn.Linear(features, 6),
            nn.BatchNorm1d(6),
            nn.Tanh(),
            nn.Dropout(0.3),
            nn.Linear(6, inner_dim),
        ],
    }
    model = nn.Sequential(*layers[kind]).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=generator, dtype=p.dtype) / 2)
    return model
