"""Every optimizer passes every check of the conformance suite."""

import pytest

from fcco.testing import CATALOGUE
from fcco.testing.conformance import CHECKS


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", CATALOGUE)
def test_conformance(name, check):
    CHECKS[check](CATALOGUE[name])
