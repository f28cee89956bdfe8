"""The paper's networks, from monai."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

__all__ = ["densenet121", "resnet"]

# A 7x7 convolution of stride 2 and a pooling layer, made for 224 pixels, would leave a quarter of
# a 32-pixel image's side; small images get a 3x3 convolution of stride 1 and no pooling.
SMALL_STEM = {"conv1_t_size": 3, "conv1_t_stride": 1, "no_max_pool": True}
IMAGENET_STEM = {"conv1_t_size": 7, "conv1_t_stride": 2, "no_max_pool": False}


def resnet(make: str, shape: tuple[int, ...], outputs: int, *, small: bool) -> nn.Module:
    """ResNet-18 or -34; ``small``: with a stem for small images."""
    from monai.networks import nets  # slow to import

    stem = SMALL_STEM if small else IMAGENET_STEM
    network: nn.Module = getattr(nets, make)(
        spatial_dims=2, n_input_channels=shape[0], num_classes=outputs, **stem
    )
    return network


def densenet121(shape: tuple[int, ...], outputs: int, *, small: bool) -> nn.Module:
    """DenseNet-121; ``small``: with a stem for small images."""
    from monai.networks.nets import DenseNet121  # type: ignore[attr-defined]
    from torch import nn

    if not small and min(shape[1:]) < 29:
        raise ValueError(
            "densenet121-imagenet halves an image five times and needs at least 29 pixels per "
            f"side, got {shape[1]} x {shape[2]}: use densenet121"
        )
    network: Any = DenseNet121(spatial_dims=2, in_channels=shape[0], out_channels=outputs)
    if small:  # its stem cannot be chosen
        network.features.conv0 = nn.Conv2d(shape[0], 64, 3, padding=1, bias=False)
        network.features.pool0 = nn.Identity()
    return network  # type: ignore[no-any-return]
