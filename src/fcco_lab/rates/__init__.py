"""Measuring the rate of every theorem on problems with known gradients."""
