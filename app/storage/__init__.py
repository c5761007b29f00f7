"""What is kept: `enums` and `tables`, `db` (engine and transactions), and `blobs`, in
one of the `stores`, with the `usage` of a workspace; rights of `files`; what
is not to be kept: `orphans` and `scratch`."""

__all__ = [
    "blobs",
    "db",
    "enums",
    "files",
    "orphans",
    "scratch",
    "stores",
    "tables",
    "usage",
]
