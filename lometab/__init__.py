"""LoMETab: tabular ensembles whose members differ by low-rank multiplicative masks."""

__version__ = "0.1.0"
