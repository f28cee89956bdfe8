"""The report."""
from pathlib import Path
def write_report(records: Path, output: Path) -> None:
    """Draw."""
