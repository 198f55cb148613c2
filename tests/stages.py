"""The data stages with what a config says of them, as the command line calls them."""

from pathlib import Path

from tokencodes.config import Config
from tokencodes.data import indexing, prepare, source, tokenizer


def shard_names(settings: Config) -> list[str]:
    return source.shard_names(settings.data.source)


def download(settings: Config, shard: str, out: Path, listing: Path | None = None) -> None:
    source.download(settings.data.source, shard, out, cache=settings.cache, pinned=listing)


def build_tokenizer(settings: Config, out: Path) -> None:
    tokenizer.build(settings.data.tokenizer, settings.model.vocab_size, out, cache=settings.cache)


def prepare_shard(settings: Config, shard: str, raw: Path, tokenizer: Path, out: Path) -> None:
    prepare.prepare_shard(settings.data, settings.model.vocab_size, shard, raw, tokenizer, out)


def index(settings: Config, shards: list[Path], out: Path) -> None:
    indexing.index(settings.data, settings.model.vocab_size, shards, out)
