"""The handwritten digits of scikit-learn, which need no download."""

import torch
from torch import Tensor

__all__ = ["load_digits"]

Part = tuple[Tensor, Tensor]


def load_digits(seed: int = 0) -> tuple[Part, Part]:
    """Return 1797 images of 8 x 8 pixels in 10 classes, 1437 for training and 360 for testing.

    The split is stratified. This function needs scikit-learn (``pip install 'fcco[sklearn]'``).

    Args:
        seed: the seed of the split.

    Returns:
        ``(x, y), (x_test, y_test)``, with pixels in [0, 1], (N, 64), and classes, (N,).

    Examples:
        >>> (x, y), (x_test, y_test) = load_digits()
        >>> x.shape, y.shape, len(x_test)
        (torch.Size([1437, 64]), torch.Size([1437]), 360)
    """
    from sklearn import datasets, model_selection

    x, y = datasets.load_digits(return_X_y=True)
    split = model_selection.train_test_split(
        x / 16, y, test_size=360, random_state=seed, stratify=y
    )
    x_train, x_test = (torch.tensor(part, dtype=torch.float32) for part in split[:2])
    y_train, y_test = (torch.tensor(part) for part in split[2:])
    return (x_train, y_train), (x_test, y_test)
