"""Benchmarks: lm-evaluation-harness tasks, their data, and the engine that scores them."""
