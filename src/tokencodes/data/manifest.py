"""What the data stages state about what they wrote: the tokenizer, one shard of a store, the whole store."""

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from tokencodes.data.spec import Tokenizer
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
    """`sha256` is that of tokenizer.json. `bytes_without_token` are byte values that the vocabulary cannot express.

    `commit` is the commit of the hub's repository that the tokenizer comes from; None for other sources.
    """

    kind: ClassVar[str] = "the manifest of a tokenizer"
    made_by: ClassVar[str] = "tokencodes tokenizer"

    sha256: Hash
    vocab_size: int = Field(ge=1)
    merges: Count
    eos_token_id: Count
    control_tokens: list[str]
    bytes_without_token: list[Annotated[int, Field(ge=0, le=255)]]
    source: Tokenizer
    commit: str | None = None


class _Part(BaseModel):
    """A part of a manifest. Immutable; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class SplitCounts(_Part):
    """Documents of a split, and their tokens."""

    documents: Count
    tokens: Count


class Lengths(_Part):
    """Histograms of the documents' lengths in tokens: bin i counts `edges[i]` <= length < `edges[i + 1]`.

    The last bin includes its upper edge, as in `numpy.histogram`.
    """

    edges: list[int] = Field(min_length=2)
    kept: list[Count]
    too_few_tokens: list[Count]

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

    rows_in: Count
    kept: Count
    dropped: dict[str, Count]
    tokens: Count
    train: SplitCounts
    validation: SplitCounts
    characters: Count
    bytes: Count

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

    format_version: Literal[1] = FORMAT
    vocab_size: int = Field(ge=1)
    tokenizer_sha256: Hash
    data_sha256: Hash  # tokencodes.data.spec.data_digest of the config
    lengths: Lengths

    @model_validator(mode="after")
    def _lengths_count_the_documents(self) -> Self:
        expected = {"kept": self.kept, "too_few_tokens": self.dropped.get("too_few_tokens", 0)}
        for name, documents in expected.items():
            if (n := sum(getattr(self.lengths, name))) != documents:
                raise ValueError(f"lengths.{name} counts {n} documents, not {documents}")
        return self


class FileFacts(_Part):
    """Hash and size of one file of a shard."""

    sha256: Hash
    bytes: Count


class ShardManifest(_Prepared):
    """One prepared shard.

    `control_token_text` counts the kept documents that hold the text of a control token, `bytes_without_token` the
    bytes of kept documents that the vocabulary cannot express.
    """

    kind: ClassVar[str] = "the manifest of a shard"
    made_by: ClassVar[str] = "tokencodes prepare"

    shard: str
    control_token_text: Count
    bytes_without_token: Count
    files: dict[str, FileFacts]

    def header(self) -> dict[str, Any]:
        """What the headers of the shard's Arrow files state too."""
        names = ("format_version", "vocab_size", "tokenizer_sha256", "data_sha256", "shard")
        return {name: getattr(self, name) for name in names}


class ShardTiming(Record):
    """What it took to prepare a shard. It differs from run to run, so no hash of the store covers it."""

    kind: ClassVar[str] = "the timing of a shard"
    made_by: ClassVar[str] = "tokencodes prepare"

    raw_bytes: Count  # not in the manifest: the same documents in another compression are the same shard
    wall_s: Seconds
    cpu_s: Seconds
    encode_cpu_s: Seconds
    encoded_bytes: Count  # of UTF-8 text, of all documents that were encoded
    encoded_tokens: Count


class ShardEntry(Counts):
    """A shard as its store lists it; `sha256` is that of its manifest."""

    name: str
    sha256: Hash

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

    duplicate_ids_across_shards: Count
    unigram_entropy: float = Field(ge=0)
    unigram_cross_entropy: float = Field(ge=0)
    shards: list[ShardEntry] = Field(min_length=1)
    sha256: Hash

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
