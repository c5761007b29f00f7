"""The connection to Postgres is cut at each step of what is done with it. `make chaos`
has more steps."""

from collections.abc import Iterator

import pytest

from tests.support.chaos.cuts import Proxy, cut_everywhere, cut_off, make_steps
from tests.support.stacks import Stack, Stacks

pytestmark = [pytest.mark.slow, pytest.mark.processes]


@pytest.fixture
def proxy(stack: Stack, stacks: Stacks) -> Iterator[Proxy]:
    with cut_off(stack, stacks.postgres.port) as proxy:
        yield proxy


@pytest.mark.parametrize("stack", ["production"], indirect=True)
@pytest.mark.parametrize("name", ["claim", "finish", "delete a model"])
def test_what_is_cut_off_is_done_once(proxy: Proxy, name: str) -> None:
    assert cut_everywhere(proxy, make_steps()[name]) > 5
