"""What is kept: `enums` and `tables`, `db` (engine and transactions), and `blobs`; what
is not to be kept: `orphans` and `scratch`."""

__all__ = ["blobs", "db", "enums", "orphans", "scratch", "tables"]
