"""Objectives: what people want to optimise, written as f_i(g_i(w))."""

from fcco.objectives.auc import MultiTaskAUC

__all__ = ["MultiTaskAUC"]
