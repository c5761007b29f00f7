"""A bar on standard error that counts epochs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lometab.checkpoint import Progress
from lometab.config import TrainConfig


@contextmanager
def show_progress(
    verbose: int, config: TrainConfig
) -> Iterator[Callable[[Progress], None] | None]:
    """What to call after each epoch, which it shows; None if it is not wanted."""
    if not verbose:
        yield None
        return
    from rich import progress as bars
    from rich.console import Console

    with bars.Progress(
        bars.TextColumn("epoch"),
        bars.MofNCompleteColumn(),
        bars.BarColumn(),
        bars.TimeElapsedColumn(),
        bars.TextColumn("{task.description}"),
        console=Console(stderr=True),
    ) as bar:
        task = bar.add_task("", total=config.max_epochs)

        def on_epoch(progress: Progress) -> None:
            bar.update(
                task,
                completed=progress.epoch,
                description=f"best {progress.best_score:.5g} "
                f"(epoch {progress.best_epoch}), now {progress.val_score:.5g}",
            )

        yield on_epoch
