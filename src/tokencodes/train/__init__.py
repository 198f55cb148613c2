"""The recipe: optimizer, schedule, loop, checkpoints, metrics, export of the final model."""
