"""The ``fcco`` command."""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; without its libraries, say which extra to install."""
    try:
        from fcco.cli.app import app
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.startswith("fcco"):
            raise
        sys.exit(
            f"fcco: the command line needs {missing.name}; install it with: "
            "pip install 'fcco[experiments]'"
        )
    app()
