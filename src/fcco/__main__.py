"""``python -m fcco`` is the ``fcco`` command."""

from fcco.cli import main

if __name__ == "__main__":
    main()
