"""Checks that a checkpoint is what its config says."""
