"""The page that ``fcco report`` writes: tables, curves and performance profiles."""

from fcco_lab.report.page import write_report

__all__ = ["write_report"]
