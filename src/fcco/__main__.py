"""``python -m fcco``, as launchers such as torchrun call it."""

from fcco.cli import main

if __name__ == "__main__":
    main()
