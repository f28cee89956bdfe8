"""Studies of questions that the theorems leave open, and comparisons with alternatives."""
