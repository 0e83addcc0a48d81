"""`python -m diaulos`: the command line, as torchrun starts it."""

from diaulos.cli.main import main

if __name__ == "__main__":
    main()
