"""Readers of strangers' bytes, and bytes that once broke one or nearly did.

`make fuzz` grows new bytes by coverage (atheris); `tests/test_corpus.py` reads what is
kept of them in every run of the tests.
"""
