"""What the data stages state about what they wrote: the tokenizer, one shard of a store, the whole store."""

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from tokencodes.data.spec import TokenizerSource
from tokencodes.files import digest
from tokencodes.records import Record
from tokencodes.spec import SHA256

MANIFEST = "manifest.json"  # beside the files that it describes, written last
TIMING = "timing.json"  # beside a shard's manifest
FORMAT = 1  # of a store's Arrow files
SPLITS = ("train", "validation")

Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0)]
Hash = Annotated[str, Field(pattern=SHA256)]


class TokenizerManifest(Record):
    """The tokenizer of a run, and the bytes that its vocabulary cannot express."""

    kind: ClassVar[str] = "the manifest of a tokenizer"
    made_by: ClassVar[str] = "tokencodes tokenizer"

    sha256: Hash = Field(description="of tokenizer.json")
    vocab_size: int = Field(ge=1, description="number of ids")
    merges: Count = Field(description="number of merges of the BPE")
    eos_token_id: Count = Field(description="id of the end-of-text token")
    control_tokens: list[str] = Field(description="texts of the tokens that stand for no text")
    bytes_without_token: list[Annotated[int, Field(ge=0, le=255)]] = Field(
        description="byte values that the vocabulary cannot express"
    )
    source: TokenizerSource = Field(description="the entry of the config")
    commit: str | None = Field(None, description="of the hub's repository; null for other sources")


class _Part(BaseModel):
    """A part of a manifest. Immutable; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class SplitCounts(_Part):
    """Documents of a split, and their tokens."""

    documents: Count = Field(description="number of documents")
    tokens: Count = Field(description="their tokens")


class Lengths(_Part):
    """Histograms of the documents' lengths in tokens: bin i counts `edges[i]` <= length < `edges[i + 1]`.

    The last bin includes its upper edge, as in `numpy.histogram`.
    """

    edges: list[int] = Field(
        min_length=2,
        description="bounds of the bins, in tokens; a bin includes its lower bound, the last one both",
    )
    kept: list[Count] = Field(description="kept documents per bin")
    too_few_tokens: list[Count] = Field(description="documents per bin that were dropped as too short")

    @model_validator(mode="after")
    def _one_bin_between_two_edges(self) -> Self:
        if any(low >= high for low, high in itertools.pairwise(self.edges)):
            raise ValueError("its edges do not rise")
        if not len(self.kept) == len(self.too_few_tokens) == len(self.edges) - 1:
            raise ValueError("its bins are not one fewer than its edges")
        return self


class Counts(_Part):
    """What became of a shard's rows. `characters` and `bytes` are those of the kept documents' texts.

    Every row is accounted for: `rows_in` is `kept` and the sum of `dropped`, which counts rows by reason.
    """

    rows_in: Count = Field(description="rows of the raw shard: kept, and dropped by reason")
    kept: Count = Field(description="rows that became documents of the store")
    dropped: dict[str, Count] = Field(description="dropped rows by reason ([reasons](../docs/data.md#rows))")
    tokens: Count = Field(description="tokens of the kept documents")
    train: SplitCounts = Field(description="the training split")
    validation: SplitCounts = Field(description="the validation split")
    characters: Count = Field(description="characters of the kept texts")
    bytes: Count = Field(description="bytes of the kept texts in UTF-8")

    @model_validator(mode="after")
    def _they_add_up(self) -> Self:
        if self.rows_in != self.kept + sum(self.dropped.values()):
            raise ValueError(f"{self.rows_in} rows in, {self.kept} kept and {sum(self.dropped.values())} dropped")
        if self.kept != self.train.documents + self.validation.documents:
            raise ValueError(f"{self.kept} rows kept are not the documents of both splits")
        if self.tokens != self.train.tokens + self.validation.tokens:
            raise ValueError(f"{self.tokens} tokens are not those of both splits")
        return self

    def split(self, name: str) -> SplitCounts:
        """The counts of `train` or `validation`."""
        return {"train": self.train, "validation": self.validation}[name]


def total(counts: Iterable[Counts]) -> Counts:
    """The sums over several shards; reasons in the order in which they first appear."""
    counts = list(counts)
    reasons = dict.fromkeys(reason for each in counts for reason in each.dropped)
    splits = {
        name: SplitCounts(
            documents=sum(each.split(name).documents for each in counts),
            tokens=sum(each.split(name).tokens for each in counts),
        )
        for name in SPLITS
    }
    return Counts(
        rows_in=sum(each.rows_in for each in counts),
        kept=sum(each.kept for each in counts),
        dropped={reason: sum(each.dropped.get(reason, 0) for each in counts) for reason in reasons},
        tokens=sum(each.tokens for each in counts),
        **splits,
        characters=sum(each.characters for each in counts),
        bytes=sum(each.bytes for each in counts),
    )


class _Prepared(Counts, Record):
    """What the manifests of a shard and of a store share."""

    format_version: Literal[1] = Field(FORMAT, description="of the Arrow files")
    vocab_size: int = Field(ge=1, description="number of ids of the tokenizer")
    tokenizer_sha256: Hash = Field(description="of tokenizer.json")
    data_sha256: Hash = Field(description="digest of the config's keys that decide the store")
    lengths: Lengths = Field(description="histograms of the documents' lengths")

    @model_validator(mode="after")
    def _lengths_count_the_documents(self) -> Self:
        expected = {"kept": self.kept, "too_few_tokens": self.dropped.get("too_few_tokens", 0)}
        for name, documents in expected.items():
            if (n := sum(getattr(self.lengths, name))) != documents:
                raise ValueError(f"lengths.{name} counts {n} documents, not {documents}")
        return self


class FileFacts(_Part):
    """Hash and size of one file of a shard."""

    sha256: Hash = Field(description="of the file")
    bytes: Count = Field(description="its size")


class ShardManifest(_Prepared):
    """One prepared shard.

    `control_token_text` counts the kept documents that hold the text of a control token, `bytes_without_token` the
    bytes of kept documents that the vocabulary cannot express.
    """

    kind: ClassVar[str] = "the manifest of a shard"
    made_by: ClassVar[str] = "tokencodes prepare"

    shard: str = Field(description="name of the shard")
    control_token_text: Count = Field(description="kept documents that contain the text of a control token")
    bytes_without_token: Count = Field(description="bytes of kept documents that the vocabulary cannot express")
    files: dict[str, FileFacts] = Field(description="the shard's files by name")

    def header(self) -> dict[str, Any]:
        """What the headers of the shard's Arrow files state too."""
        names = ("format_version", "vocab_size", "tokenizer_sha256", "data_sha256", "shard")
        return {name: getattr(self, name) for name in names}


class ShardTiming(Record):
    """What it took to prepare a shard. It differs from run to run, so no hash of the store covers it."""

    kind: ClassVar[str] = "the timing of a shard"
    made_by: ClassVar[str] = "tokencodes prepare"

    # Not in the manifest: the same documents in another compression are the same shard.
    raw_bytes: Count = Field(description="size of the raw shard")
    wall_s: Seconds = Field(description="seconds of wall time")
    cpu_s: Seconds = Field(description="seconds of CPU time")
    encode_cpu_s: Seconds = Field(description="of these, in the encoder")
    encoded_bytes: Count = Field(description="bytes of UTF-8 text of all encoded documents")
    encoded_tokens: Count = Field(description="their tokens")


class ShardEntry(Counts):
    """A shard as its store lists it; `sha256` is that of its manifest."""

    name: str = Field(description="of the shard and its folder")
    sha256: Hash = Field(description="of the shard's manifest")

    @field_validator("name")
    @classmethod
    def _a_folder_beside_the_manifest(cls, name: str) -> str:
        if name != Path(name).name or name in ("", ".."):
            raise ValueError(f"{name!r} is not the name of a folder beside it")
        return name


class StoreManifest(_Prepared):
    """A whole store. Entropies are in nats per token; `sha256` is the identity that runs record as `store_sha256`."""

    kind: ClassVar[str] = "the manifest of a store"
    made_by: ClassVar[str] = "tokencodes index"

    duplicate_ids_across_shards: Count = Field(description="documents whose id is also in another shard")
    unigram_entropy: float = Field(ge=0, description="of the training tokens, nats per token")
    unigram_cross_entropy: float = Field(
        ge=0, description="of the validation tokens under that unigram model, nats per token"
    )
    shards: list[ShardEntry] = Field(min_length=1, description="the shards, in the order of the corpus")
    sha256: Hash = Field(description="of all other keys: the store's identity, which runs record as `store_sha256`")

    @classmethod
    def of(cls, **fields: object) -> Self:
        """The manifest with these fields, and its identity."""
        return cls(**fields, sha256=cls.model_construct(**fields, sha256="").identity())

    def identity(self) -> str:
        """Hex SHA-256 of all other fields."""
        return digest(self.model_dump(mode="json", exclude={"sha256"}))

    @model_validator(mode="after")
    def _it_is_what_its_identity_says(self) -> Self:
        if self.sha256 != self.identity():
            raise ValueError("its sha256 is not that of its other fields")
        return self
