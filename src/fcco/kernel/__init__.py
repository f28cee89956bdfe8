"""The computation of a step: rows and their table, the oracle, checks, and the step itself."""
