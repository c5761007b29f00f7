"""The short form of what `make chaos` does to prediction jobs."""

import pytest

from tests.support.chaos.examination import examine
from tests.support.chaos.predictions import (
    check,
    kill,
    make_table,
    open_field,
    start,
    train,
    wipe_broker,
)
from tests.support.stacks import Stacks


@pytest.mark.slow
@pytest.mark.processes
def test_every_row_once_whatever_befalls_the_workers(stacks: Stacks) -> None:
    table = make_table(12_000)
    with open_field(stacks, chunk_rows=1000) as field:
        model_id = train(field)
        job_id = start(field, model_id, table)
        field.wait_for_chunks(job_id, 2)
        kill(field)
        field.wait_for_chunks(job_id, 6)
        wipe_broker(field)
        check(field, model_id, job_id, table)
        owners = field.stack.query(
            "SELECT DISTINCT owner FROM attempts JOIN jobs ON id = job_id "
            "WHERE jobs.parent_id = :id",
            id=job_id,
        )
        assert len(owners) >= 2, "one worker did all of it"
    examine(field.stack)
