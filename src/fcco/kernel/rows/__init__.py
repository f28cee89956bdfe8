"""What a row of the table is: the value itself, or mantissas followed by their log-scale."""

from fcco.kernel.rows.plain import PlainRows
from fcco.kernel.rows.row import Rows
from fcco.kernel.rows.scaled import ScaledRows
from fcco.problem import Objective, ScaledObjective

__all__ = ["PlainRows", "Rows", "ScaledRows", "rows_of"]


def rows_of(objective: Objective) -> Rows:
    """The rows ``objective`` asks for.

    Examples:
        >>> from fcco.objectives import MultiTaskAUC
        >>> type(rows_of(MultiTaskAUC([0, 1]))).__name__
        'PlainRows'
    """
    if isinstance(objective, ScaledObjective):
        return ScaledRows(objective)
    return PlainRows(objective)
