"""Standardized features, which stay sparse, and a check that features are finite."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse
from sklearn.preprocessing import StandardScaler

__all__ = ["LARGEST", "Standardized", "first_wrong"]

LARGEST = 1e150
"""Largest allowed feature, whose square is finite, as the scaling requires."""

_SPARSE = 0.25
"""Share of nonzero numbers below which a product with sparse features is faster."""


@dataclass(frozen=True, eq=False)
class Standardized:
    """The features (X - mean) / scale.

    A dense X is standardized once. A sparse X stays as it is, and products with it are corrected.

    Examples:
        >>> scaler = StandardScaler().fit([[0.0], [4.0]])
        >>> Standardized.of(csr_array([[0.0], [4.0]]), scaler) @ np.array([[3.0]])
        array([[-3.],
               [ 3.]])
    """

    X: Any
    mean: NDArray[np.float64]
    scale: NDArray[np.float64]

    @classmethod
    def of(cls, X: Any, scaler: StandardScaler) -> Self:
        """Standardize features by a fitted scaler; dense ones with many zeros become sparse."""
        if not issparse(X) and np.count_nonzero(X) >= _SPARSE * X.size:
            mean, scale = np.zeros(X.shape[1]), np.ones(X.shape[1])
            return cls((X - scaler.mean_) / scaler.scale_, mean, scale)
        return cls(csr_array(X), scaler.mean_, scaler.scale_)

    @property
    def shape(self) -> tuple[int, int]:
        """The shape (n, d)."""
        rows, columns = self.X.shape
        return rows, columns

    def __getitem__(self, rows: Any) -> Self:
        return type(self)(self.X[rows], self.mean, self.scale)

    def __matmul__(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        # (X - mean) / scale @ w = X @ (w / scale) - mean @ (w / scale), so X itself is not changed.
        slopes = weights / self.scale[:, None]
        found: NDArray[np.float64] = self.X @ slopes - self.mean @ slopes
        return found

    def transposed(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the transpose times values (n, k)."""
        found: NDArray[np.float64] = self.X.T @ values - np.outer(self.mean, values.sum(0))
        return found / self.scale[:, None]

    def array(self) -> NDArray[np.float64]:
        """Return the standardized features as a dense array."""
        found: NDArray[np.float64] = self.X.toarray() if issparse(self.X) else self.X
        return (found - self.mean) / self.scale


def first_wrong(X: Any) -> tuple[int, int] | None:
    """Return row and column of the first feature that is not finite or is too large, or None.

    Examples:
        >>> first_wrong(csr_array([[1.0, 2.0], [0.0, np.nan]])), first_wrong(np.eye(2))
        ((1, 1), None)
    """
    wrong = ~(np.abs(X.data if issparse(X) else X) <= LARGEST)
    if not wrong.any():
        return None
    if not issparse(X):
        row, column = np.argwhere(wrong)[0]
        return int(row), int(column)
    first = int(wrong.argmax())
    # In CSR format, row r owns the entries indptr[r] to indptr[r + 1].
    row = int(np.searchsorted(X.indptr, first, side="right")) - 1
    return row, int(X.indices[first])
