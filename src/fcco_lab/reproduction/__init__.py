"""The paper's experiments: what is run for each figure and table, and what is made of it."""
