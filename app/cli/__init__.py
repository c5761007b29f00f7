"""The command `lometab`. It starts without any extra: commands load what they need."""

from app.cli.application import main

__all__ = ["main"]
