"""``python -m fcco_lab``, as launchers such as torchrun call it."""

from fcco_lab.cli import main

if __name__ == "__main__":
    main()
