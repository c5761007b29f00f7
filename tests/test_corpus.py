"""Bytes that fuzzing found (`make fuzz`) are read, or refused for what they are."""

import pytest

from tests.support.fuzz.seeds import make_seeds
from tests.support.fuzz.targets import TARGETS, read_corpus


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_no_bytes_break_a_reader(name: str) -> None:
    for content in (*read_corpus(name), *make_seeds(name)):
        TARGETS[name](content)
