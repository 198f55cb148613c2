"""The decoder backbone, its accounting, and the Transformers adapter."""
