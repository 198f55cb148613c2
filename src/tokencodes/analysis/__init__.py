"""Paired statistics over per-document scores."""
