"""Networks for images of any size, grey or colour, by name."""

from fcco_lab.networks.catalogue import NETWORKS, build_network

__all__ = ["NETWORKS", "build_network"]
