"""Presentation of runs: names, mean curves, tables, figures and performance profiles."""
