"""What a run will take before it is started: parameters, memory, arithmetic.

Knows no torch: the service asks here whether a job fits before it accepts it. The terms
are the arrays of `ensemble.py`, `train.py` and `kernels.py` that are alive when memory
peaks, and `benchmarks/estimate.py` compares them with measured peaks.
"""

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass

from lometab.config import ModelConfig, Storage, TrainConfig
from lometab.machine import guess_seconds
from lometab.predictor import MAX_ROWS
from lometab.row_file import BUFFER_BYTES, SAMPLE_BYTES
from lometab.table import HELD_ROWS, PERIODS, Schema, Split

_FLOAT = 4  # of the network
_DOUBLE = 8  # of raw numbers, codes and pointers
_MB = 10**6
# What torch and ONNX Runtime take for themselves with the first work they do.
_TORCH_BYTES = 90 * _MB
_ONNX_RUNTIME_BYTES = 10 * _MB
_SCIKIT_LEARN_BYTES = 100 * _MB  # loaded for the metrics
_ARROW_BYTES = 30 * _MB  # kept by Arrow when columns of a file have been read
_ROW_BYTES = 60  # of a row: its target, its part, a value while a column is read
# Freed arrays of this size go back to the system; smaller ones wait to be used again.
_RETURNED_BYTES = 32 * 2**20
_MAX_ACTIVATION = 2**24  # numbers in the widest layer of a validation batch
_CACHED = 2**20  # numbers in arrays of a few members that are worked on together
_SCORED_ROWS = 8192  # rows whose probabilities are in float64 at a time


@dataclass(frozen=True, kw_only=True)
class Widths:
    """What decides the size of a network besides its config."""

    n_numeric: int
    """Numbers it sees of a row; each passes an embedding."""
    cardinalities: tuple[int, ...] = ()
    """Levels of each categorical column, then a 1 for each indicator of missing."""
    d_out: int = 1
    """Outputs of a member: the classes if they are more than two, else 1."""
    n_bins: int | None = None
    """Bins of the feature that has most; None: as many as there may be."""

    @classmethod
    def of(cls, schema: Schema, cardinalities: Sequence[int] = ()) -> "Widths":
        """Widths before anything was fitted; `cardinalities` as `cost_of` has them."""
        n_known = len(cardinalities) - len(schema.categorical)
        if not 0 <= n_known <= len(schema.numeric):
            raise ValueError(
                "cardinalities must have a number for each of "
                f"{len(schema.categorical)} categorical columns, and at most "
                f"{len(schema.numeric)} more, however: {len(cardinalities)}"
            )
        n_waves = 2 * len(PERIODS) * len(schema.datetime)
        return cls(
            n_numeric=len(schema.numeric) + n_waves,
            cardinalities=tuple(cardinalities),
            d_out=len(schema.classes or ()) if schema.task == "multiclass" else 1,
        )


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a run will take. Memory is of a CPU process, above what imports take."""

    n_parameters: int
    """The number of trained numbers; what the model counts, if the bins are known."""
    training_bytes: int
    """The peak from a table to a trained model, the table included if in memory."""
    job_bytes: int
    """The same, with the export, its check and the reports that a job makes then."""
    folded_bytes: int
    """Every member's own weights, which a serving process multiplies out."""
    serving_bytes: int
    """The peak of loading the exported file and answering full batches by it."""
    flops_per_epoch: int
    """Operations of the matrix products in an epoch, those on validation included."""
    steps_per_epoch: int
    """Steps of the optimiser in an epoch."""
    disk_bytes: int = 0
    """Of the file with the rows to train on, if they are in one."""


def cost_of(
    table: Schema | Widths,
    n_rows: int,
    config: TrainConfig,
    *,
    cardinalities: Sequence[int] = (),
    split: Split | None = None,
    is_file: bool = False,
    has_checkpoints: bool = False,
    storage: Storage = "memory",
    n_table: int | None = None,
) -> Cost:
    """What training on a table with this many rows will take.

    From a schema it is an upper bound, since nothing is fitted yet: a feature is taken
    to have `n_bins` bins, and may have less where its values repeat; a column that is
    the same in all training rows is no feature at all.

    Args:
        n_rows: rows of all parts.
        cardinalities: with a schema, the levels of each categorical column, missing
            among them, then a 1 for each numeric column with missing values.
        split: the shares of validation and test; None: the default ones.
        is_file: the table is read from a Parquet file, column by column, and so is
            never in memory as a whole. Texts are taken to be short: of long ones a
            column is in memory a few times while it is read.
        has_checkpoints: training hands out copies of its state.
        storage: where the rows are that are trained on.
        n_table: rows of the table, if the parts have fewer.
    """
    split = split or Split()
    if isinstance(table, Schema):
        widths = Widths.of(table, cardinalities)
        n_columns = len(table.numeric) + len(table.categorical)
        n_ignored = len(table.ignored)
    else:
        widths, n_ignored = table, 0
        n_columns = table.n_numeric + sum(n > 1 for n in table.cardinalities)
    counts = _Counts.of(n_rows, split)
    sizes = _Sizes(widths, config, counts.train)
    n_table = max(n_rows, n_table or 0)
    n_values = n_table * (n_columns + n_ignored + 1)
    rows = _ARROW_BYTES if is_file else _DOUBLE * n_values
    rows += _ROW_BYTES * n_table
    serving = _serving_bytes(sizes, config)
    if storage == "file":
        training = _training_from_file(
            sizes, config, counts, n_table, n_columns, has_checkpoints
        )
        counts = counts.held()
    else:
        training = _training_in_memory(
            sizes, config, counts, n_columns, has_checkpoints
        )
    # The network, twice its size in float64 to check the file, the file's content, and
    # the message that it is made from; of the raw inputs a part is picked beside them.
    copies = 5 * _FLOAT * sizes.n_parameters
    picked = _DOUBLE * max(counts.train, counts.val) * n_columns
    reporting = _DOUBLE * counts.total * n_columns + picked + copies + serving
    reporting += _report_bytes(sizes, config, counts.total)
    return Cost(
        n_parameters=sizes.n_parameters,
        training_bytes=_TORCH_BYTES + rows + training,
        job_bytes=_TORCH_BYTES + rows + max(training, reporting),
        folded_bytes=_FLOAT * sizes.folded,
        serving_bytes=serving,
        disk_bytes=sizes.n_train * sizes.record_bytes if storage == "file" else 0,
        flops_per_epoch=_flops_per_epoch(sizes, config, sizes.n_train, counts.val),
        steps_per_epoch=math.ceil(sizes.n_train / config.batch_size),
    )


def guess_epoch(widths: Widths, n_train: int, n_val: int, config: TrainConfig) -> float:
    """Seconds that an epoch takes one core."""
    sizes = _Sizes(widths, config, n_train)
    flops = _flops_per_epoch(sizes, config, n_train, n_val)
    return guess_seconds(flops, math.ceil(n_train / config.batch_size))


@dataclass(frozen=True)
class _Counts:
    """Rows of the parts; what neither trains nor validates is `apart`."""

    train: int
    val: int
    test: int
    calibration: int

    @classmethod
    def of(cls, n_rows: int, split: Split) -> "_Counts":
        n_val = max(round(n_rows * split.val), 1)
        n_test = round(n_rows * split.test)
        n_own = round(n_rows * (split.calibration or 0.0))
        return cls(max(n_rows - n_val - n_test - n_own, 1), n_val, n_test, n_own)

    def held(self) -> "_Counts":
        """Of those that are in memory where the others are in a file."""
        return _Counts(*(min(n, HELD_ROWS) for n in astuple(self)))

    @property
    def total(self) -> int:
        return self.train + self.val + self.test + self.calibration


class _Sizes:
    """Widths of the layers of a network, and numbers in its weights."""

    def __init__(self, widths: Widths, config: ModelConfig, n_train: int) -> None:
        n_bins = widths.n_bins
        if n_bins is None:
            n_bins = max(min(config.n_bins, n_train - 1), 1)
        self.n_train = n_train
        self.n_numeric = widths.n_numeric
        self.n_codes = len(widths.cardinalities)
        # A row as it is trained on, in memory and in a file.
        self.transformed_bytes = _FLOAT * self.n_numeric + _DOUBLE * (self.n_codes + 1)
        self.record_bytes = _FLOAT * (self.n_numeric + self.n_codes + 2)
        self.d_out = widths.d_out
        self.d_embedded = widths.n_numeric * config.d_embedding
        self.d_in = self.d_embedded + sum(widths.cardinalities)
        # A row's piecewise-linear encoding, each number itself, and a one.
        self.d_encoded = widths.n_numeric * (n_bins + 2)
        inputs = [self.d_in] + [config.d_block] * (config.n_blocks - 1)
        self.blocks = [(d_in, config.d_block) for d_in in inputs]
        self.head = (config.d_block, widths.d_out)
        # Numbers in all members' own weights, layer by layer.
        self.members = [config.k * d_in * d_out for d_in, d_out in self.blocks]
        self.folded = sum(self.members) + config.k * config.d_block * widths.d_out
        # The members of a deep ensemble each have an embedding.
        self.n_embeddings = config.k if config.variant == "deep-ensemble" else 1
        self.d_flat = self.n_embeddings * self.d_in
        self.n_parameters = (
            # The encoding's weight, a weight, a bias.
            self.n_embeddings * self.d_embedded * (n_bins + 2)
            + sum(_block_parameters(*block, config) for block in self.blocks)
            + config.k * (config.d_block + 1) * widths.d_out
        )


def _block_parameters(d_in: int, d_out: int, config: ModelConfig) -> int:
    k, shared = config.k, d_in * d_out
    if config.variant == "tabm":
        return shared + k * (d_in + 2 * d_out)  # W, r, s, bias
    if config.variant in ("mlp", "deep-ensemble"):
        return k * (shared + d_out)
    return shared + k * (config.rank * (d_in + d_out) + d_out)  # W, A, B, bias


# Memory


def _training_in_memory(
    sizes: _Sizes,
    config: TrainConfig,
    counts: _Counts,
    n_columns: int,
    has_checkpoints: bool,
) -> int:
    # The raw inputs are gone when the network is trained, but not all their memory is.
    raw = _DOUBLE * counts.total * n_columns
    kept = min(raw, _RETURNED_BYTES)
    # What the raw inputs of train and validation are transformed to.
    arrays = (counts.train + counts.val) * sizes.transformed_bytes
    network = _network_bytes(sizes, config, counts.train, counts.val, has_checkpoints)
    return arrays + max(raw, kept + network)


def _training_from_file(
    sizes: _Sizes,
    config: TrainConfig,
    counts: _Counts,
    n_table: int,
    n_columns: int,
    has_checkpoints: bool,
) -> int:
    held = counts.held()
    # A column of the table, and what its quantiles are found with.
    column = _DOUBLE * (2 * n_table + 5 * counts.train)
    sample = min(SAMPLE_BYTES, _FLOAT * sizes.n_numeric * counts.train)
    # Validation rows, and test rows where runs are compared.
    arrays = (held.val + held.test) * sizes.transformed_bytes
    raw = _DOUBLE * held.val * n_columns
    n_buffer = min(counts.train, int(1.5 * BUFFER_BYTES / sizes.record_bytes))
    buffer = n_buffer * sizes.transformed_bytes
    network = _network_bytes(sizes, config, n_buffer, held.val, has_checkpoints)
    return max(column, sample + arrays + max(raw, buffer + network))


def _network_bytes(
    sizes: _Sizes, config: TrainConfig, n_train: int, n_val: int, has_checkpoints: bool
) -> int:
    weights = _FLOAT * sizes.n_parameters
    # The weights, their gradient, two moments, the best epoch's, and their average.
    n_averages = 1 if config.ema else 0
    states = (5 + n_averages) * weights
    # Row numbers of each member's batches, in 32 bits.
    order = 4 * n_train * (1 if config.share_batches else config.k)
    step, kept = _step_bytes(sizes, config, n_train)
    # Of the weights, at the end of an epoch.
    n_copies = 4 + n_averages if has_checkpoints else 1
    after_steps = max(_validation_bytes(sizes, config, n_val), n_copies * weights)
    return states + order + max(step, kept + after_steps)


def _step_bytes(sizes: _Sizes, config: TrainConfig, n_train: int) -> tuple[int, int]:
    """What is alive in a step, going forward or back, and what of it stays allocated.

    Arrays are given as their size and how many of them there are at the peak.
    """
    n_batch = min(config.batch_size, n_train)
    n_embedded = n_batch * (sizes.n_embeddings if config.share_batches else config.k)
    encoding = _FLOAT * n_embedded * sizes.d_encoded
    flat = _FLOAT * n_embedded * sizes.d_in
    hidden = _FLOAT * n_batch * config.k * config.d_block
    outputs = _FLOAT * n_batch * config.k * sizes.d_out
    is_factored = config.variant == "tabm"  # inputs and outputs times r and s
    forward = [(encoding, 1), (flat, 2)]
    backward = [
        (encoding, 1),
        (flat, 4 if is_factored else 3),
        (hidden, config.n_blocks * (4 if is_factored else 1) + 3),
        (outputs, 3),
    ]
    layers = [_FLOAT * members for members in sizes.members]
    if config.variant == "lometab":  # masks, weights and gradients of a few members
        few = max(_FLOAT * _CACHED, 2 * max(layers) // config.k)
        backward += [(min(few, max(layers)), 4), (min(few, hidden), 1)]
    elif config.variant == "additive":  # of all layers the weights, of one gradients
        backward += [(layer, 1) for layer in layers] + [(max(layers), 2)]
    step = max(sum(n * size for size, n in arrays) for arrays in (forward, backward))
    kept = max(
        sum(n * size for size, n in arrays if size < _RETURNED_BYTES)
        for arrays in (forward, backward)
    )
    return step, kept


def _validation_bytes(sizes: _Sizes, config: TrainConfig, n_val: int) -> int:
    """What is alive when validation rows are predicted, or when they are scored."""
    d_hidden = config.k * config.d_block
    widest = max(d_hidden, sizes.d_flat, sizes.n_numeric * config.n_bins)
    n_batch = min(n_val, max(_MAX_ACTIVATION // widest, 1))
    has_masks = config.variant in ("lometab", "additive")
    weights = 2 * max(sizes.members) if has_masks else 0
    predicting = max(
        n_batch * (sizes.d_encoded + 2 * sizes.d_flat),
        n_batch * (sizes.d_flat + 3 * d_hidden) + weights,
    )
    if n_val > n_batch:  # what one batch frees is only in part used by the next
        arrays = [(n_batch * sizes.d_flat, 2), (n_batch * d_hidden, 3)]
        predicting += sum(
            n * size for size, n in arrays if _FLOAT * size < _RETURNED_BYTES
        )
    outputs = n_val * config.k * sizes.d_out
    n_scored = n_val if sizes.d_out == 1 else min(n_val, _SCORED_ROWS)
    scored = n_scored * config.k * sizes.d_out
    return max(
        _FLOAT * (predicting + outputs),
        _FLOAT * 2 * outputs,
        _FLOAT * outputs + 4 * _DOUBLE * scored,
    )


def _serving_bytes(sizes: _Sizes, config: ModelConfig) -> int:
    folded = _FLOAT * sizes.folded
    # The weights and what they are multiplied out by, before it is tidied up.
    n_products = {"tabm": 3, "deep-ensemble": 1, "mlp": 1}.get(config.variant, 4)
    loading = n_products * folded + 2 * _FLOAT * sizes.n_parameters
    widths = 2 * config.k * config.d_block + 3 * sizes.d_encoded + 2 * sizes.d_flat
    widths += 3 * config.k * sizes.d_out
    running = folded + _FLOAT * MAX_ROWS * widths
    return _ONNX_RUNTIME_BYTES + max(loading, running)


def _report_bytes(sizes: _Sizes, config: ModelConfig, n_rows: int) -> int:
    """Answers to all rows, and what metrics make of them."""
    n_classes = max(sizes.d_out, 2)
    answers = _FLOAT * config.k + 2 * _DOUBLE
    return _SCIKIT_LEARN_BYTES + n_rows * n_classes * answers


# Arithmetic


def _flops_per_epoch(
    sizes: _Sizes, config: TrainConfig, n_train: int, n_val: int
) -> int:
    """Two operations for each multiplication; going back costs twice going forward."""
    n_steps = math.ceil(n_train / config.batch_size)
    n_embedded = n_train * (sizes.n_embeddings if config.share_batches else config.k)
    encoded = 2 * sizes.d_encoded * config.d_embedding  # the input needs no gradient
    layers = 2 * (sum(sizes.members) + config.k * math.prod(sizes.head))
    masks = 0
    if config.variant in ("lometab", "additive"):
        masks = 2 * config.rank * sum(sizes.members)
    training = 2 * n_embedded * encoded + 3 * n_train * layers + 3 * n_steps * masks
    if not sizes.n_numeric and config.variant != "tabm":  # nothing to learn before it
        training -= 2 * n_train * sizes.members[0]
    return training + n_val * (sizes.n_embeddings * encoded + layers) + masks
