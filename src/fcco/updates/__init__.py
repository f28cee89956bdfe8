"""Step rules: how the estimate z moves the parameters."""

from fcco.updates.adam import Adam, AMSGrad
from fcco.updates.normalized import Normalized
from fcco.updates.plain import Plain
from fcco.updates.projected import Projected
from fcco.updates.update import Norm, Update

__all__ = ["AMSGrad", "Adam", "Norm", "Normalized", "Plain", "Projected", "Update"]
