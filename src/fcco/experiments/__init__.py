"""Experiments: contenders, trials under a budget, metrics and what is made of them."""
