"""Metrics that need no network."""

from amp_recipes.metrics.glue import RESULT_KEYS, GlueMetric, primary_metric

__all__ = ["RESULT_KEYS", "GlueMetric", "primary_metric"]
