"""How a step is computed: the recursion, rows and their table, the oracle, the step itself."""
