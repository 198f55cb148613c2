"""Which files of the hub are the corpus: the listing that pins them, and the raw shards that come by it.

A listing names the commit, and for each shard the file, its size and its hash. It is asked for once, so all shards come
from one commit even if the branch moves while they are fetched.
"""

import shutil
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from tokencodes.data import hub
from tokencodes.data.spec import HubSource
from tokencodes.errors import UserError
from tokencodes.records import Record
from tokencodes.spec import SHA256, section_digest

GIB = 2**30
MARGIN = GIB  # stays free beside what is fetched: logs, and what other jobs write meanwhile
REMEDY = "make it again: `tokencodes list`"


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str = Field(description="of the file in the repository")
    size: int = Field(ge=0, strict=True, description="bytes")


class LargeFile(_Entry):
    """A file in the hub's large storage (LFS, Xet)."""

    sha256: str = Field(pattern=SHA256, description="of a file in the hub's large storage")


class SmallFile(_Entry):
    """A file in the repository itself, by git's hash of a blob."""

    git_sha1: str = Field(pattern=r"^[0-9a-f]{40}$", description="git's hash of a file in the repository itself")


class Listing(Record):
    """What the hub states of the files of a corpus, by shard."""

    kind: ClassVar[str] = "the listing of a corpus"
    made_by: ClassVar[str] = "tokencodes list"

    repo: str = Field(description="the dataset, as owner/name")
    revision: str = Field(description="as the config states it")
    pattern: str = Field(description="path of a shard in the repository")
    n_shards: int = Field(description="number of shards")
    commit: Annotated[str, Field(pattern=hub.COMMIT.pattern)] = Field(
        description="for which the revision stood when the hub was asked"
    )
    endpoint: str = Field(description="address of the hub or mirror that was asked")
    files: dict[str, LargeFile | SmallFile] = Field(description="the raw shards' files, by shard")

    def file(self, shard: str) -> hub.File:
        """The file of a shard."""
        entry = self.files[shard]
        return hub.File.of(entry.path, entry.size, entry.sha256 if isinstance(entry, LargeFile) else entry.git_sha1)


def _question(source: HubSource) -> dict[str, Any]:
    """The keys of the config that decide what a listing says."""
    return source.model_dump(mode="json", include={"repo", "revision", "pattern", "n_shards"})


def listing_name(source: HubSource) -> str:
    """The file name of its listing. Another source has another name, so that it does not replace this listing."""
    return f"listing-{section_digest(_question(source))[:8]}.json"


def read(path: Path, source: HubSource) -> Listing:
    """Read the listing of `source`. Raises UserError if it is damaged, or that of another source."""
    listing, question = Listing.read(path), _question(source)
    if other := [key for key, value in question.items() if getattr(listing, key) != value]:
        raise UserError(f"{path}: was made for another data.source ({', '.join(other)}); {REMEDY}")
    return listing


def write(source: HubSource, shards: list[str], out: Path) -> None:
    """Ask the hub for the commit and the files of all shards and write them to `out`.

    A listing that says the same is not written again and keeps its time. Raises UserError if a file is missing, if the
    hub cannot be asked, or if the disk of `out` (raw shards go to the folder `raw` beside it) cannot hold what is to
    come; what stood at `out` before is then untouched.
    """
    paths = [source.pattern.format(shard=number) for number in range(source.n_shards)]
    commit, files = hub.state(_repo(source), paths)
    entries = {
        shard: {"path": file.path, "size": file.size, file.hash: file.digest}
        for shard, file in zip(shards, files, strict=True)
    }
    listing = Listing(**_question(source), commit=commit, endpoint=hub.endpoint(), files=entries)
    size = sum(file.size for file in files)
    print(f"{source.repo} at {source.revision}: commit {commit}, {len(files)} shards, {size / GIB:.2f} GiB")
    raw = out.parent / "raw"
    places = [(raw / f"{shard}.parquet", file) for shard, file in zip(shards, files, strict=True)]
    coming = [hub.missing_bytes(place, file) for place, file in places if not place.exists()]
    _check_disk(raw, coming if source.keep_raw else coming and [max(coming)])
    if _says_the_same(out, listing):
        print(f"{out}: up to date")
        return
    listing.write(out)
    print(f"{out}: written")


def _says_the_same(path: Path, listing: Listing) -> bool:
    """Whether the listing at `path` differs from this one in its endpoint at most."""
    try:
        return Listing.read(path).model_copy(update={"endpoint": listing.endpoint}) == listing
    except UserError:
        return False


def download(source: HubSource, shards: list[str], number: int, out: Path, path: Path | None) -> None:
    """Bring the raw file of shard `number` to `out`: that of the listing at `path`; without one, that of the hub now.

    Raises UserError as `hub.fetch` does, and before a byte is fetched if the disk cannot hold what is to come.
    """
    shard, repo, done = shards[number], _repo(source), "downloaded"
    if path is None:
        commit, (file,) = hub.state(repo, [source.pattern.format(shard=number)])
        others = {}
    else:
        listing = read(path, source)
        if shard not in listing.files:
            raise UserError(f"{path}: has no {shard}; {REMEDY}")
        commit, file = listing.commit, listing.file(shard)
        others = {other: listing.file(other) for other in listing.files if other != shard}
    if out.is_file() and hub.problem(file, out) is None:
        done = "up to date"
    else:
        coming = [hub.missing_bytes(out, file)]
        for other, other_file in others.items():  # those that are to be kept, or are being fetched
            place = out.with_name(f"{other}.parquet")
            if not place.exists() and (source.keep_raw or hub.partial_path(place, other_file).exists()):
                coming.append(hub.missing_bytes(place, other_file))
        _check_disk(out.parent, coming)
        hub.fetch(repo, commit, file, out)
    print(f"{out}: {done}: {file.size:,} bytes, {file.hash} {file.digest[:12]}, of commit {commit[:12]}")


def _repo(source: HubSource) -> hub.Repo:
    return hub.Repo("data.source", source.repo, "dataset", source.revision)


def _check_disk(folder: Path, coming: list[int]) -> None:
    """Raise UserError unless the disk of `folder` can take files of so many bytes, and MARGIN."""
    needed = sum(coming)
    existing = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    free = shutil.disk_usage(existing).free
    if needed and free < needed + MARGIN:
        raise UserError(
            f"{folder}: {len(coming)} raw shard{'s' * (len(coming) > 1)} to come: {needed / GIB:.2f} GiB are needed "
            f"and {MARGIN / GIB:.2f} GiB must stay free, {free / GIB:.2f} GiB are free; free some space, or put "
            "`results` on another disk"
        )
