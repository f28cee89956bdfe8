"""Runs shown to people: names, mean curves, tables, figures and performance profiles."""
