"""Sums of the rows of all blocks over the chunks of an exact pass."""

import torch
from torch import Tensor

from fcco.kernel.rows import Rows

__all__ = ["RowSums"]


class RowSums:
    """Sums of rows, each weighted by the number of its samples, and these numbers.

    Args:
        form: the format of the rows.
        num_blocks: the number of blocks m.
        dtype: the dtype of the sums.
        device: the device of the sums.

    Examples:
        >>> from fcco.kernel.rows import rows_of
        >>> from fcco.objectives import MultiTaskGap
        >>> rows = rows_of(MultiTaskGap(torch.tensor([0, 1])))
        >>> sums = RowSums(rows, 2, torch.float32, torch.device("cpu"))
        >>> for value, count in ((1.0, 1), (4.0, 2)):
        ...     sums.add(torch.tensor([0]), torch.tensor([[value]]), torch.tensor([count]))
        >>> sums.samples, sums.means()[0]
        (tensor([3, 0]), tensor([3.]))
    """

    def __init__(
        self, form: Rows, num_blocks: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.form = form
        self.rows = torch.zeros((num_blocks, form.width), dtype=dtype, device=device)
        self.samples = torch.zeros(num_blocks, dtype=torch.int64, device=device)

    def add(self, blocks: Tensor, rows: Tensor, samples: Tensor) -> None:
        """Add rows of distinct blocks, each the mean of as many samples as ``samples`` says."""
        blocks, rows, samples = (part.to(self.rows.device) for part in (blocks, rows, samples))
        part = self.form.weigh(rows, samples.unsqueeze(1).to(rows.dtype))
        self.rows[blocks] = self.form.add(self.rows[blocks], part)
        self.samples[blocks] += samples

    def means(self) -> Tensor:
        """The mean row of every block."""
        return self.form.weigh(self.rows, 1 / self.samples.to(self.rows.dtype).unsqueeze(1))
