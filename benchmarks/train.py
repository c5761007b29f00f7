"""How fast training is: beside the `tabm` package, to a quality, and as rows grow.

    python benchmarks/train.py [steps] [quality] [scale] [guard]

- steps: full optimiser steps of the network alone, on ready inputs of width 16 times
  the features, then with piecewise-linear embeddings, and with each member on rows of
  its own. All contenders take turns in one process, so that a ratio holds on a machine
  that is faster or slower; the machine's own sgemm rate is measured in the same turns.
- quality: the time from a CSV to a quality, beside the training loop that the README
  of the `tabm` package shows, at the same settings.
- scale: time for each row, and memory, from 10 thousand rows to a million.
- guard: seconds long, only if asked for: a small step is not twice what it once was.

Turns in which other processes took more than a tenth of a core are left out. What was
measured is kept in `results/train.jsonl`; without a line there it is measured again.
The exit status is 1 if a bound does not hold.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import rtdl_num_embeddings
import tabm
import torch
import torch.nn.functional as F
from record import Runs, former, table, write_section
from torch import Tensor, nn

from lometab.config import (
    TRAINING_ENVIRONMENT,
    ModelConfig,
    TrainConfig,
)
from lometab.cost import Widths, cost_of
from lometab.embedding import compute_bins
from lometab.nn import (
    BatchEnsembleLinear,
    LoMETab,
    LoMETabLinear,
    MemberLinear,
    hidden_layer,
)

THREADS = 2
BATCH = 256
DROPOUT = 0.1
D_EMBEDDING = 16

# (K, rank, d_block, n_blocks, features) and the bound on a step, in steps of `tabm`.
SHAPES: dict[tuple[int, int, int, int, int], float] = {
    (32, 16, 80, 3, 28): 0.5,
    (32, 16, 416, 2, 8): 0.75,
    (16, 16, 944, 3, 54): 1.1,
    (16, 8, 192, 2, 8): 0.5,
    (32, 2, 800, 1, 5): 0.5,
}
INPUTS = ("ready", "embedded", "own rows")
SGEMM_SHAPE, MIN_SGEMM = (32, 16, 416, 2, 8), 0.55
MAX_OTHERS = 0.1  # cores that others may take in a turn that counts

Step = Callable[[], object]


# Turns


def busy_seconds() -> float:
    """Processor time that all processes took so far, by Linux."""
    user, nice, system, _, _, irq, softirq, steal, *_ = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    )
    ticks = user + nice + system + irq + softirq + steal
    return ticks / os.sysconf("SC_CLK_TCK")


class Disturbed(Exception):
    """Other processes took too much of the machine."""


def take_turns(
    steps: dict[str, Step], *, seconds: float, patience: float = 12.0
) -> tuple[dict[str, float], float]:
    """Median seconds of each step, and the share of the time that others left free.

    Goes on until `seconds` of undisturbed turns have passed, for at most `patience`
    times as long.
    """
    for step in steps.values():
        step()
        step()
    quiet: dict[str, list[float]] = {name: [] for name in steps}
    started, quiet_seconds = time.perf_counter(), 0.0
    while quiet_seconds < seconds:
        begin, busy, own = time.perf_counter(), busy_seconds(), time.process_time()
        times: dict[str, list[float]] = {name: [] for name in steps}
        while time.perf_counter() - begin < 0.5:
            for name, step in steps.items():
                start = time.perf_counter()
                step()
                times[name].append(time.perf_counter() - start)
        elapsed = time.perf_counter() - begin
        others = busy_seconds() - busy - (time.process_time() - own)
        is_quiet = others < MAX_OTHERS * elapsed + 0.02  # ticks are of 10 ms
        if is_quiet:
            quiet_seconds += elapsed
            for name, each in times.items():
                quiet[name] += each
        else:
            time.sleep(1)
        if time.perf_counter() - started > patience * seconds:
            break
    share = quiet_seconds / (time.perf_counter() - started)
    if min(map(len, quiet.values())) < 3:
        raise Disturbed("other processes left no time to measure in")
    return {name: median(each) for name, each in quiet.items()}, share


# Contenders


class Backbone(nn.Module):
    """The blocks and the head of our model, for ready inputs."""

    def __init__(self, blocks: list[nn.Module], d_block: int, k: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.head = MemberLinear(d_block, 1, k=k)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = hidden_layer(block, x, DROPOUT, training=self.training)
        out: Tensor = self.head(x)
        return out


class NaiveBackbone(Backbone):
    """The formula as one would first write it."""

    def forward(self, x: Tensor) -> Tensor:
        x = x[:, None].expand(-1, self.head.k, -1)
        for layer in self.blocks:
            residual = torch.einsum("kor,kir->koi", layer.a, layer.b)
            weight = layer.weight * (1 + residual)
            x = torch.einsum("bki,koi->bko", x, weight) + layer.bias
            x = F.dropout(F.relu(x), DROPOUT)
        return torch.einsum("bki,koi->bko", x, self.head.weight) + self.head.bias


class TabM(nn.Module):
    """The backbone and the head of the `tabm` package, for ready inputs."""

    def __init__(self, k: int, d_block: int, n_blocks: int, n_features: int) -> None:
        super().__init__()
        self.k = k
        self.backbone = tabm.make_tabm_backbone(
            d_in=D_EMBEDDING * n_features,
            n_blocks=n_blocks,
            d_block=d_block,
            dropout=DROPOUT,
            k=k,
            start_scaling_init="normal",
            start_scaling_init_chunks=[D_EMBEDDING] * n_features,
        )
        self.output = tabm.LinearEnsemble(d_block, 1, k=k)

    def forward(self, x: Tensor) -> Tensor:
        x = tabm.ensemble_view(x, self.k, self.training)
        out: Tensor = self.output(self.backbone(x))
        return out


def make_step(model: nn.Module, x: Tensor, y: Tensor) -> Step:
    """Forward, loss, backward, clipping, AdamW: the same for all."""
    parameters = [*model.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, weight_decay=3e-4, fused=True)
    target = y[:, None] if y.ndim == 1 else y

    def step() -> None:
        outputs = model(x).squeeze(-1)  # (B, K)
        loss = F.mse_loss(outputs, target.expand_as(outputs))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True)
        optimizer.step()

    return step


def on_ready_inputs(shape: tuple[int, int, int, int, int]) -> dict[str, Step]:
    k, rank, d_block, n_blocks, n_features = shape
    x = torch.randn(BATCH, D_EMBEDDING * n_features)
    y = torch.randn(BATCH)
    widths = [x.shape[1]] + [d_block] * (n_blocks - 1)

    def lometab() -> list[nn.Module]:
        return [
            LoMETabLinear(d, d_block, k=k, rank=rank, sigma_init=1.0) for d in widths
        ]

    rank_one: list[nn.Module] = [BatchEnsembleLinear(d, d_block, k=k) for d in widths]
    models = {
        "tabm": TabM(k, d_block, n_blocks, n_features),
        "lometab": Backbone(lometab(), d_block, k),
        "our tabm variant": Backbone(rank_one, d_block, k),
        "naive einsum": NaiveBackbone(lometab(), d_block, k),
    }
    a, b = torch.randn(2, 2048, 2048)
    c = torch.empty(2048, 2048)
    steps: dict[str, Step] = {
        name: make_step(model, x, y) for name, model in models.items()
    }
    return steps | {"sgemm": lambda: torch.mm(a, b, out=c)}


def with_embeddings(
    shape: tuple[int, int, int, int, int], *, is_shared: bool
) -> dict[str, Step]:
    """The whole model, on numbers as the preprocessing gives them."""
    k, rank, d_block, n_blocks, n_features = shape
    rows = torch.randn(4096, n_features)
    x = rows[torch.randint(4096, (BATCH,) if is_shared else (BATCH, k))]
    y = torch.randn(x.shape[:-1])
    sizes = {"k": k, "d_block": d_block, "n_blocks": n_blocks, "dropout": DROPOUT}
    config = ModelConfig(rank=rank, d_embedding=D_EMBEDDING, **sizes)
    bins = compute_bins(rows, config.n_bins)
    theirs = tabm.TabM.make(
        n_num_features=n_features,
        d_out=1,
        num_embeddings=rtdl_num_embeddings.PiecewiseLinearEmbeddings(
            bins, D_EMBEDDING, activation=False, version="B"
        ),
        **sizes,
    )
    ours = LoMETab(bins=bins, cardinalities=[], d_out=1, config=config)
    return {"tabm": make_step(theirs, x, y), "lometab": make_step(ours, x, y)}


def flops(shape: tuple[int, int, int, int, int]) -> int:
    """Of a step, if products of the blocks going forward and back are all there is."""
    k, _, d_block, n_blocks, n_features = shape
    widths = [D_EMBEDDING * n_features] + [d_block] * (n_blocks - 1)
    return 6 * BATCH * k * sum(d * d_block for d in widths)


def profile(step: Step) -> dict[str, float]:
    """Where a step's time goes, in shares, by torch's own profiler."""
    kinds = {
        "products": ("bmm", "mm", "addmm", "baddbmm"),
        "ReLU and dropout": ("threshold_backward", "clamp_min_", "random_", "randint"),
        "optimiser": ("_fused_adamw_", "Optimizer.step", "_foreach", "linalg_vector"),
    }
    step()
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU]
    ) as seen:
        for _ in range(5):
            step()
    shares: dict[str, float] = dict.fromkeys([*kinds, "the rest"], 0.0)
    events = seen.key_averages()
    total = sum(event.self_cpu_time_total for event in events)
    for event in events:
        name = event.key.removeprefix("aten::")
        found = (kind for kind, names in kinds.items() if name.startswith(names))
        shares[next(found, "the rest")] += event.self_cpu_time_total / total
    return shares


# Steps


def measure_steps(runs: Runs) -> None:
    for shape in SHAPES:
        for inputs in INPUTS:
            key = {"part": "steps", "shape": shape, "inputs": inputs}
            try:
                result = runs.get(key, partial(measure_step, shape, inputs))
            except Disturbed as error:
                print(shape, inputs, error, flush=True)
                continue
            times = result["seconds"]
            print(
                shape,
                inputs,
                *(f"{name} {1e3 * each:.1f} ms," for name, each in times.items()),
                f"ratio {times['lometab'] / times['tabm']:.2f}, undisturbed for "
                f"{result['quiet']:.0%}",
                flush=True,
            )


def measure_step(shape: tuple[int, int, int, int, int], inputs: str) -> dict[str, Any]:
    torch.manual_seed(0)
    if inputs == "ready":
        steps = on_ready_inputs(shape)
    else:
        steps = with_embeddings(shape, is_shared=inputs == "embedded")
    times, quiet = take_turns(steps, seconds=5.0)
    shares = profile(steps["lometab"]) if inputs == "ready" else {}
    return {"seconds": times, "quiet": quiet, "profile": shares}


# The guard

GUARD_SHAPE = (8, 4, 64, 2, 8)
GUARD_RATIO = 0.56  # of LoMETab to `tabm`, as recorded on one thread
GUARD_TRIES = 3  # a busy machine may spoil one


def guard() -> int:
    """Exit status 1 if a step at a small shape is far slower than it was."""
    torch.set_num_threads(1)
    steps = on_ready_inputs(GUARD_SHAPE)
    for _ in range(GUARD_TRIES):
        ratios = []
        for _ in range(60):
            seconds = {}
            for name in ("tabm", "lometab"):
                start = time.perf_counter()
                steps[name]()
                seconds[name] = time.perf_counter() - start
            ratios.append(seconds["lometab"] / seconds["tabm"])
        ratio = median(ratios[10:])
        print(f"{ratio:.2f} of the step of `tabm`, once {GUARD_RATIO}")
        if ratio <= 2 * GUARD_RATIO:
            return 0
    return 1


# Time to a quality


GOALS = {"california": 0.455, "adult": 0.866}
MAX_TIME = 0.6  # of the former default, in times of the `tabm` loop to the same RMSE
# Both have batches that all members share, as the README of the package has them: on
# california at the settings of the former default, on adult at those that
# `benchmarks/quality.py` chose, since with the default ones nobody comes to the goal.
SHARED = {
    "california": former(share_batches=True),
    "adult": former(
        k=8, d_block=128, lr=2e-3, sigma_init=2.0, n_bins=256, share_batches=True
    ),
}
DEFAULT = former()
CONTENDERS = {
    "california": ("tabm", "lometab, shared", "lometab, default"),
    "adult": ("tabm", "lometab, shared"),
}


def quality_key(name: str, contender: str) -> dict[str, Any]:
    return {"part": "quality", "data": name, "contender": contender, "threads": THREADS}


def is_reached(name: str, score: float, goal: float) -> bool:
    return score <= goal if name == "california" else score >= goal


def run_child(*arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, __file__, "--child", *arguments],
        env={**os.environ, **TRAINING_ENVIRONMENT},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def measure_quality(runs: Runs) -> None:
    for name, contenders in CONTENDERS.items():
        for contender in contenders:
            make = partial(run_child, "quality", name, contender)
            result = runs.get(quality_key(name, contender), make)
            *_, last = result["curve"]
            print(name, contender, f"{last[0]:.1f} s, test {result['test']:.4f}")


def train_to_quality(name: str, contender: str) -> dict[str, Any]:
    """In a process of its own: from the CSV to a trained model, ours to a file too.

    The curve holds seconds since the file was opened and the score on test after each
    epoch; the time it took to score it is taken out.
    """
    from tables import TARGETS, load

    start = time.perf_counter()
    data = load(name)
    assert data.schema.target == TARGETS[name]
    if contender == "tabm":
        return tabm_loop(data, start)
    config = SHARED[name] if contender == "lometab, shared" else DEFAULT
    return lometab_loop(data, config, start)


def lometab_loop(data: Any, config: TrainConfig, start: float) -> dict[str, Any]:
    import lometab.ensemble
    from lometab.export import to_onnx
    from lometab.losses import score
    from lometab.table import features
    from lometab.train import fit, predict

    x_num, x_cat = features(data.table, data.schema)
    rows = data.parts["test"]
    model: list[LoMETab] = []
    fitted: list[Any] = []
    curve: list[tuple[float, float]] = []
    unseen = 0.0  # seconds spent on the test part, which training does not look at

    def on_epoch(_: object) -> None:
        nonlocal unseen
        begin = time.perf_counter()
        if not fitted:
            fitted.append(test_part(data, x_num, x_cat, rows))
        x, codes, y, y_std = fitted[0]
        outputs = predict(model[0], x, codes)
        value, *_ = score(outputs, y, task=data.schema.task, y_std=y_std)
        curve.append((begin - start - unseen, value))
        unseen += time.perf_counter() - begin

    def watched(*arguments: Any, **options: Any) -> Any:
        return fit(*arguments, prepare=model.append, **options)

    lometab.ensemble.fit = watched  # type: ignore[attr-defined]
    ensemble = lometab.ensemble.train_ensemble(
        data.table, data.schema, data.parts, config, on_epoch=on_epoch
    )
    content = to_onnx(ensemble)
    seconds = time.perf_counter() - start - unseen
    best = curve[ensemble.fit.best_epoch - 1]
    return {
        "curve": curve,
        "seconds": seconds,
        "test": best[1],
        "best_epoch": ensemble.fit.best_epoch,
        "file_bytes": len(content),
    }


def test_part(data: Any, x_num: Any, x_cat: Any, rows: Any) -> tuple[Any, ...]:
    """The test rows as the network sees them."""
    from lometab.table import Preprocessor, target

    y = target(data.table, data.schema)
    preprocessor = Preprocessor().fit(
        x_num,
        x_cat,
        y,
        task=data.schema.task,
        min_frequency=data.schema.min_frequency,
        rows=data.parts["train"],
    )
    scores, codes = preprocessor.transform(x_num, x_cat, rows=rows)
    scaled = preprocessor.scale_target(y[rows], data.schema.task)
    tensors = [torch.from_numpy(array) for array in (scores, codes, scaled)]
    return *tensors, preprocessor.y_std_


def tabm_loop(data: Any, start: float) -> dict[str, Any]:
    """The loop that the README of the package shows, at the settings of `SHARED`.

    The inputs are prepared by our own code, which is not slower than scikit-learn's.
    """
    from lometab.table import Preprocessor, features, target

    config, task = SHARED[data.name], data.schema.task
    x_num, x_cat = features(data.table, data.schema)
    y = target(data.table, data.schema)
    preprocessor = Preprocessor().fit(
        x_num, x_cat, y, task=task, rows=data.parts["train"]
    )
    parts = {}
    for part in ("train", "val", "test"):
        rows = data.parts[part]
        scores, codes = preprocessor.transform(x_num, x_cat, rows=rows)
        scaled = preprocessor.scale_target(y[rows], task)
        parts[part] = [torch.from_numpy(array) for array in (scores, codes, scaled)]
        if not codes.shape[1]:
            parts[part][1] = None  # type: ignore[call-overload]
    x_train, c_train, y_train = parts["train"]
    torch.manual_seed(0)
    model = tabm.TabM.make(
        n_num_features=x_train.shape[1],
        cat_cardinalities=preprocessor.cardinalities_,
        d_out=1 if task == "regression" else 2,
        num_embeddings=rtdl_num_embeddings.PiecewiseLinearEmbeddings(
            compute_bins(x_train, config.n_bins),
            config.d_embedding,
            activation=False,
            version="B",
        ),
        k=config.k,
        n_blocks=config.n_blocks,
        d_block=config.d_block,
        dropout=config.dropout,
    )
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=config.lr, weight_decay=config.weight_decay
    )

    def loss_of(outputs: Tensor, target: Tensor) -> Tensor:
        target = target.repeat_interleave(config.k)
        if task == "regression":
            return F.mse_loss(outputs.flatten(), target)
        return F.cross_entropy(outputs.flatten(0, 1), target)

    @torch.inference_mode()
    def evaluate(part: str) -> float:
        model.eval()
        x, codes, target = parts[part]
        outputs = torch.cat(
            [
                model(x[rows], None if codes is None else codes[rows])
                for rows in torch.arange(len(x)).split(8096)
            ]
        )
        if task == "regression":
            mean = outputs.squeeze(-1).mean(1)
            return (mean - target).square().mean().sqrt().item() * preprocessor.y_std_
        mean = outputs.softmax(-1).mean(1)
        return (mean.argmax(1) == target).double().mean().item()

    curve: list[tuple[float, float]] = []
    best, best_epoch, test, unseen = None, 0, 0.0, 0.0
    for epoch in range(1, config.max_epochs + 1):
        for rows in torch.randperm(len(x_train)).split(config.batch_size):
            model.train()
            optimizer.zero_grad()
            codes = None if c_train is None else c_train[rows]
            loss = loss_of(model(x_train[rows], codes), y_train[rows])
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        value = evaluate("val")
        is_better = best is None or (
            value < best if task == "regression" else value > best
        )
        begin = time.perf_counter()
        score = evaluate("test")
        curve.append((begin - start - unseen, score))
        unseen += time.perf_counter() - begin
        if is_better:
            best, best_epoch, test = value, epoch, score
        assert config.patience is not None
        if epoch - best_epoch >= config.patience:
            break
    seconds = time.perf_counter() - start - unseen
    return {"curve": curve, "seconds": seconds, "test": test, "best_epoch": best_epoch}


def seconds_to(
    name: str, curve: list[tuple[float, float]], goal: float
) -> float | None:
    reached = (at for at, score in curve if is_reached(name, score, goal))
    return next(reached, None)


# Scale


N_ROWS = (10_000, 100_000, 1_000_000)
N_COLUMNS = 20
SCALE = former(max_epochs=1, patience=None)
MAX_MEMORY = 3.0  # in tables as float32, above what the model takes by the estimate
MAX_PER_ROW = 1.3  # the most and the least time for a row


def measure_scale(runs: Runs) -> None:
    for n_rows in N_ROWS:
        key = {"part": "scale", "rows": n_rows}
        result = runs.get(key, partial(run_child, "scale", str(n_rows)))
        print(
            f"{n_rows} rows: {1e6 * result['seconds'] / n_rows:.0f} us each, "
            f"{result['bytes'] / 1e6:.0f} MB beside the table",
            flush=True,
        )


def train_at_scale(n_rows: int) -> dict[str, Any]:
    """In a process of its own: an epoch on a table that is in memory, and its peak."""
    from estimate import peak, resident

    from lometab.ensemble import train_ensemble
    from lometab.table import Split, infer_schema, split_rows

    rng = np.random.default_rng(0)
    x = rng.standard_normal((N_COLUMNS, n_rows), dtype=np.float32)
    rows: dict[str, Any] = {f"n{i}": column for i, column in enumerate(x)}
    rows["y"] = x[0] + x[1] * x[2]
    kinds = dict.fromkeys([f"n{i}" for i in range(N_COLUMNS)], "numeric")
    schema = infer_schema(rows, target="y", task="regression", columns=kinds)  # type: ignore[arg-type]
    few = {name: column[:2000] for name, column in rows.items()}
    train_ensemble(few, schema, split_rows(few, schema, Split()), SCALE)  # to warm up
    parts = split_rows(rows, schema, Split())
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    level = resident()
    start = time.process_time()
    train_ensemble(rows, schema, parts, SCALE)
    return {"seconds": time.process_time() - start, "bytes": peak() - level}


def model_bytes() -> int:
    """What the model takes however many rows there are.

    That is the estimate for the least number of rows that fill batches of validation.
    """
    widths = Widths(n_numeric=N_COLUMNS)
    return cost_of(widths, 40_000, SCALE).training_bytes


# The section in docs/results.md


def write(runs: Runs) -> bool:
    parts = [
        "## Training speed\n\n`make bench-train`. Steps are on two threads; contenders "
        "of a line take turns in one process, and medians are of the turns that other "
        "processes did not disturb.",
        *(text for make in (of_steps, of_quality, of_scale) for text in make(runs)),
    ]
    write_section("train", "\n\n".join(parts))
    return "**no**" not in "".join(parts)


def holds(is_met: bool) -> str:
    return "yes" if is_met else "**no**"


def of_steps(runs: Runs) -> Iterator[str]:
    def find(shape: tuple[int, ...], inputs: str) -> Any:
        return runs.find({"part": "steps", "shape": shape, "inputs": inputs})

    if not all(find(shape, "ready") for shape in SHAPES):
        return
    yield (
        "Full optimiser steps (forward, loss, backward, clipping, AdamW; all fused "
        f"alike) on batches of {BATCH} rows, dropout {DROPOUT}, as multiples of the "
        "step of the `tabm` package. First the blocks and heads alone, on ready inputs "
        "of width 16 times the features:"
    )
    rows = []
    for shape, bound in SHAPES.items():
        result = find(shape, "ready")
        times = result["seconds"]
        ratios = {name: f"{each / times['tabm']:.2f}" for name, each in times.items()}
        rate = flops(shape) / times["lometab"] / (2 * 2048**3 / times["sgemm"])
        rows.append(
            [
                shape,
                f"{1e3 * times['tabm']:.0f} ms",
                ratios["lometab"],
                f"<= {bound}",
                holds(times["lometab"] <= bound * times["tabm"]),
                ratios["our tabm variant"],
                ratios["naive einsum"],
                f"{rate:.0%}"
                + (f" (>= {MIN_SGEMM:.0%}: " if shape == SGEMM_SHAPE else "")
                + (holds(rate >= MIN_SGEMM) + ")" if shape == SGEMM_SHAPE else ""),
            ]
        )
    header = ["K, rank, d, L, features", "tabm", "LoMETab", "bound", "holds"]
    header += ["our `tabm` variant", "naive einsum", "of the sgemm rate"]
    yield table(header, rows)
    yield (
        "The last column counts 6 B K sum(d_in d_out) operations, though going back to "
        "the inputs of the first layer is left out where nothing is learned before it. "
        "With piecewise-linear embeddings on both sides, and with rows of its own for "
        "each member (`share_batches` false):"
    )
    rows = []
    for shape in SHAPES:
        cells: list[object] = [shape]
        for inputs in INPUTS[1:]:
            result = find(shape, inputs)
            if result is None:
                cells += ["-", "not measured"]
                continue
            times = result["seconds"]
            cells += [
                f"{1e3 * times['tabm']:.0f} ms",
                f"{times['lometab'] / times['tabm']:.2f}",
            ]
        rows.append(cells)
    header = ["K, rank, d, L, features", "tabm, shared rows", "LoMETab"]
    yield table([*header, "tabm, own rows", "LoMETab"], rows)
    yield "Where a step of LoMETab goes, by torch's profiler:"
    kinds = [*find(next(iter(SHAPES)), "ready")["profile"]]
    yield table(
        ["K, rank, d, L, features", *kinds],
        [
            [
                shape,
                *(f"{each:.0%}" for each in find(shape, "ready")["profile"].values()),
            ]
            for shape in SHAPES
        ],
    )


def of_quality(runs: Runs) -> Iterator[str]:
    def find(name: str, contender: str) -> Any:
        return runs.find(quality_key(name, contender))

    if not all(find("california", each) for each in CONTENDERS["california"]):
        return
    used = "; ".join(
        f"{name}: {config.k} members, {config.n_blocks} blocks of {config.d_block}, "
        f"{config.n_bins} bins, lr {config.lr}"
        for name, config in SHARED.items()
        if find(name, "tabm") is not None
    )
    yield (
        f"Seconds on {THREADS} threads from the CSV to a score on test, beside the "
        "training loop of the `tabm` package's README with the same K, widths, bins, "
        f"learning rate, dropout and batches ({used}); one seed. Ours *shared* has "
        "batches that all members share, as that loop; *default* is the former default "
        "preset."
    )
    rows = []
    for name, goal in GOALS.items():
        for contender in CONTENDERS[name]:
            run = find(name, contender)
            if run is None:
                continue
            reached = seconds_to(name, run["curve"], goal)
            rows.append(
                [
                    f"{name} {goal}",
                    contender,
                    "never" if reached is None else f"{reached:.1f} s",
                    f"{run['test']:.4f}",
                    f"{run['best_epoch']} of {len(run['curve'])}",
                    f"{run['seconds']:.1f} s",
                ]
            )
    header = ["goal", "contender", "reached after", "score at the best epoch"]
    yield table([*header, "best epoch", "whole run"], rows)
    ours, theirs = find("california", "lometab, default"), find("california", "tabm")
    same = seconds_to("california", theirs["curve"], ours["test"])
    bound = same if same is not None else theirs["seconds"]
    ratio = ours["seconds"] / bound
    yield (
        f"The former default preset on california, raw CSV to exported model: "
        f"{ours['seconds']:.1f} s to a test RMSE of {ours['test']:.4f}. The `tabm` "
        + (
            f"loop is there after {same:.1f} s"
            if same is not None
            else f"loop never is; it stops after {theirs['seconds']:.1f} s"
        )
        + f": {ratio:.2f} of its time, at most {MAX_TIME}: {holds(ratio <= MAX_TIME)}."
    )
    both = max(min(score for _, score in run["curve"]) for run in (ours, theirs))
    at, theirs_at = (seconds_to("california", r["curve"], both) for r in (ours, theirs))
    yield (
        f"Both come to {both:.4f} in some epoch: ours after {at:.1f} s, the loop of "
        f"`tabm` after {theirs_at:.1f} s."
    )


def of_scale(runs: Runs) -> Iterator[str]:
    found = {n: runs.find({"part": "scale", "rows": n}) for n in N_ROWS}
    if not all(found.values()):
        return
    yield (
        f"One epoch of the former default preset on synthetic tables of {N_COLUMNS} "
        "columns that are in memory, preprocessing included, each in a process of its "
        "own, on one thread. "
        "Memory is the peak beside the table; at most "
        f"{MAX_MEMORY:.0f} times the table as float32, and what the model takes by "
        f"the estimate ({model_bytes() / 1e6:.0f} MB):"
    )
    rows = []
    for n, run in found.items():
        assert run is not None
        bound = MAX_MEMORY * 4 * n * (N_COLUMNS + 1) + model_bytes()
        rows.append(
            [
                f"{n:,}",
                f"{run['seconds']:.1f} s",
                f"{1e6 * run['seconds'] / n:.0f} us",
                f"{run['bytes'] / 1e6:.0f} MB",
                f"<= {bound / 1e6:.0f} MB",
                holds(run["bytes"] <= bound),
            ]
        )
    yield table(["rows", "epoch", "a row", "memory", "bound", "holds"], rows)
    per_row = [run["seconds"] / n for n, run in found.items() if run is not None]
    spread = max(per_row) / min(per_row)
    yield (
        f"The dearest row costs {spread:.2f} times the cheapest (at most "
        f"{MAX_PER_ROW}: {holds(spread <= MAX_PER_ROW)})."
    )


def main(names: list[str]) -> int:
    if names == ["guard"]:
        return guard()
    runs = Runs("train")
    if not names or "steps" in names:
        measure_steps(runs)
    if not names or "quality" in names:
        measure_quality(runs)
    if not names or "scale" in names:
        measure_scale(runs)
    return 0 if write(runs) else 1


if __name__ == "__main__":
    torch.set_num_threads(THREADS)
    if sys.argv[1:2] == ["--child"]:
        what, *arguments = sys.argv[2:]
        torch.set_num_threads(THREADS if what == "quality" else 1)
        of = {"quality": train_to_quality, "scale": lambda n: train_at_scale(int(n))}
        print(json.dumps(of[what](*arguments)))
    else:
        sys.exit(main(sys.argv[1:]))
