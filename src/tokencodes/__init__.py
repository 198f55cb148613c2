"""Token Codes: language models with a learned input table or fixed minimal token codes, side by side."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("tokencodes")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0.0.0"
