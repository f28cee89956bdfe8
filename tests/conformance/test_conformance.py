"""Every optimizer passes every check of the conformance suite."""

import pytest

from fcco.testing import CATALOGUE
from fcco.testing.conformance import CHECKS

# Those that differ from another in gamma or slopes alone are in the slow suite.
NAMES = [
    pytest.param(name, marks=pytest.mark.slow if entry.extra else ())
    for name, entry in CATALOGUE.items()
]


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", NAMES)
def test_conformance(name, check):
    CHECKS[check](CATALOGUE[name])
