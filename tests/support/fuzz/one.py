"""Grow bytes for one reader, led by the lines of ours that they reach.

python -m tests.support.fuzz.one TARGET [what libFuzzer takes]
"""

import sys

import atheris  # type: ignore[import-untyped]

with atheris.instrument_imports(include=["app", "lometab", "python_multipart"]):
    from tests.support.fuzz.targets import TARGETS


def main() -> None:
    program, name, *options = sys.argv
    atheris.Setup([program, *options], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
