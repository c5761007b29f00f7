"""`python -m app.cli`."""

from app.cli.application import main

if __name__ == "__main__":
    main()
