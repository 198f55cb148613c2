"""What a corpus will ask for, and how often a model will see it: disk, CPU-hours, epochs. For `tokencodes plan`.

Nothing is fetched. Each figure says where it comes from, the first of these that there is: `measured` (shards that have
been prepared already), `listing` (what the hub stated), `footers` (of local Parquet files), `stated` (data.expected in
the config), `assumed` (the constants below). Where some shards alone are prepared, their mean times the number of
shards counts, and `listing` and `footers` come before it. What only the preparation can tell is None, with a bound
where there is one.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tokencodes import config
from tokencodes.data import listing, source, store
from tokencodes.data.manifest import MANIFEST, TIMING, ShardManifest, ShardTiming, total
from tokencodes.data.spec import data_digest
from tokencodes.errors import UserError, one_line

# MB of text in a CPU second of the whole preparation. benchmarks/encode.py measured 34 (docs/data.md), on a corpus in
# which words come again more often than on the web.
MB_PER_CPU_SECOND = 20.0
BYTES_PER_TOKEN = 4.4  # of English web text in UTF-8, with the paper's vocabulary
RAW_SHARE = 0.6  # of a text's size that its Parquet file takes, by Snappy
ID_BYTES = 47  # of an id such as "<urn:uuid:...>"
ROW_BYTES = 8 + 8 + 8  # of a document in the store beside tokens and id: key, and where its id and its tokens begin
JOBS = (1, 8, 32, 128)  # at a time, for which hours are given
MIB, GIB = 2**20, 2**30
LATER = "known when prepared"


@dataclass(frozen=True)
class Figure:
    """A number, where it comes from, and how it is meant: "" exact, "about", "at least" or "at most"."""

    value: float | None
    source: str = ""
    bound: str = ""


UNKNOWN = Figure(None)
MEASURED = "measured"
AS_KNOWN = (
    *("documents", "tokens", "text_bytes", "raw_bytes"),
    *("kept_documents", "kept_tokens", "train_documents", "train_tokens"),
)


def estimate(settings: config.Config, tokens_per_model: int) -> dict[str, Any]:
    """The figures as plain values: bytes, tokens, documents, hours. Raises UserError naming a damaged file."""
    shards = source.shard_names(settings)
    measured = _measured(settings, shards)
    name = measured.pop("source")
    part = "" if name == MEASURED else "about"
    known = {key: Figure(value, name, part) for key, value in measured.items()}
    for name, figures in (("listing", _listing(settings, shards)), ("footers", _footers(settings))):
        stated = {key: Figure(value, name) for key, value in figures.items()}
        known = known | stated if part else stated | known  # of all shards: better than some shards' mean
    expected = settings.data.expected.model_dump(exclude={"kept_share"})
    known = {key: Figure(value, "stated") for key, value in expected.items() if value is not None} | known
    if (share := settings.data.expected.kept_share) is not None:
        train = 1 - settings.data.split.threshold
        for key, part in (("tokens", share), ("documents", 1.0 if share == 1 else None)):
            if key in known and f"kept_{key}" not in known and part is not None:
                known[f"kept_{key}"] = Figure(round(known[key].value * part), "stated", "about")
                known[f"train_{key}"] = Figure(round(known[key].value * part * train), "stated", "about")
    if "text_bytes" not in known and "tokens" in known:
        known["text_bytes"] = Figure(round(known["tokens"].value * BYTES_PER_TOKEN), "assumed", "about")
    if "raw_bytes" not in known and "text_bytes" in known:
        known["raw_bytes"] = Figure(round(known["text_bytes"].value * RAW_SHARE), "assumed", "about")
    windows = tokens_per_model // settings.model.context_length
    figures = {key: known.get(key, UNKNOWN) for key in AS_KNOWN} | {
        "raw_at_a_time_bytes": _raw_at_a_time(settings, known, len(shards)),
        "store_bytes": known.get("store_bytes") or _store(settings, known),
        "mb_per_cpu_second": known.get("mb_per_cpu_second", Figure(MB_PER_CPU_SECOND, "assumed")),
    }
    hours = _quotient(figures["text_bytes"], figures["mb_per_cpu_second"], 1 / 1e6 / 3600)
    figures |= {
        "cpu_hours": hours,
        "epochs": _times(tokens_per_model, known.get("train_tokens"), known.get("tokens")),
        "draws_a_document": _times(windows, known.get("train_documents"), known.get("documents")),
    }
    return {
        "shards": len(shards),
        "windows_per_model": windows,
        **{key: asdict(figure) for key, figure in figures.items()},
        "wall_hours": {
            str(n): hours.value / n for n in JOBS if hours.value is not None and (n == 1 or n <= len(shards))
        },
    }


def _times(n: int, over: Figure | None, bound: Figure | None) -> Figure:
    """How often `n` goes over what is trained on; if that is not known, at least as often as over all that comes in."""
    if over is not None and over.value:
        return Figure(n / over.value, over.source, over.bound)
    if bound is not None and bound.value:
        return Figure(n / bound.value, bound.source, "at least")
    return UNKNOWN


def _quotient(top: Figure, bottom: Figure, factor: float) -> Figure:
    if top.value is None or not bottom.value:
        return UNKNOWN
    where = dict.fromkeys([top.source, bottom.source])
    return Figure(top.value / bottom.value * factor, ", ".join(where), "about")


def _raw_at_a_time(settings: config.Config, known: dict[str, Figure], n_shards: int) -> Figure:
    """Raw shards that lie on the disk: all that are kept; else one for each job that prepares one (here: one job)."""
    raw = known.get("raw_bytes", UNKNOWN)
    if settings.data.source.kind != "hub" or settings.data.source.keep_raw or raw.value is None:
        return raw
    if (largest := known.get("largest_raw_bytes")) is not None:
        return largest
    return Figure(round(raw.value / n_shards), raw.source, "about")


def _store(settings: config.Config, known: dict[str, Figure]) -> Figure:
    """Tokens and rows of the store; if it is not known what is kept, of all that comes in."""
    width = store.token_dtype(settings.model.vocab_size).itemsize
    for tokens, documents, bound in (("kept_tokens", "kept_documents", "about"), ("tokens", "documents", "at most")):
        if (figure := known.get(tokens)) is not None:
            rows = known.get(documents, known.get("documents", UNKNOWN))
            return Figure(figure.value * width + (rows.value or 0) * (ROW_BYTES + ID_BYTES), figure.source, bound)
    return UNKNOWN


# ------------------------------------------------------------------- sources


def _measured(settings: config.Config, shards: list[str]) -> dict[str, Any]:
    """Sums over the shards that this config has prepared; scaled to all shards if some are missing."""
    folder = Path(settings.results).expanduser() / settings.name / "data" / "store"
    expected = data_digest(settings.data, settings.model.vocab_size)
    manifests, timings = [], []
    for shard in shards:
        if not (folder / shard / MANIFEST).is_file():
            continue
        manifest = ShardManifest.read(folder / shard / MANIFEST)
        if manifest.data_sha256 != expected:  # of another config: nothing that this one would get
            continue
        manifests.append(manifest)
        if (folder / shard / TIMING).is_file():
            timings.append(ShardTiming.read(folder / shard / TIMING))
    if not manifests:
        return {"source": MEASURED}
    scale = len(shards) / len(manifests)

    counts = total(manifests)
    found = {
        "source": MEASURED if scale == 1 else f"{MEASURED} in {len(manifests)} of {len(shards)} shards",
        "documents": round(counts.rows_in * scale),
        "kept_documents": round(counts.kept * scale),
        "kept_tokens": round(counts.tokens * scale),
        "train_documents": round(counts.train.documents * scale),
        "train_tokens": round(counts.train.tokens * scale),
        "store_bytes": round(sum(file.bytes for each in manifests for file in each.files.values()) * scale),
    }
    if len(timings) < len(manifests):
        return found
    n_bytes, cpu = sum(each.encoded_bytes for each in timings), sum(each.cpu_s for each in timings)
    raw = [each.raw_bytes for each in timings]
    found |= {"raw_bytes": round(sum(raw) * scale), "largest_raw_bytes": max(raw)}
    return found | ({"text_bytes": round(n_bytes * scale), "mb_per_cpu_second": n_bytes / 1e6 / cpu} if cpu else {})


def _listing(settings: config.Config, shards: list[str]) -> dict[str, int]:
    """Sizes that the hub stated, if it was asked already."""
    if settings.data.source.kind != "hub":
        return {}
    folder = Path(settings.results).expanduser() / settings.name / "data"
    path = folder / listing.listing_name(settings.data.source)
    if not path.is_file():
        return {}
    sizes = [file.size for file in listing.read(path, settings.data.source).files.values()]
    return {"raw_bytes": sum(sizes), "largest_raw_bytes": max(sizes)} if len(sizes) == len(shards) else {}


def _footers(settings: config.Config) -> dict[str, int]:
    """Rows, size on disk and size of the texts of local files, from the ends of the files alone."""
    if settings.data.source.kind != "local":
        return {}
    sizes, rows, text = [], 0, 0
    for shard in source.shard_names(settings):
        path = Path(settings.data.source.path).expanduser() / f"{shard}.parquet"
        try:
            metadata = pq.read_metadata(path)
            sizes.append(path.stat().st_size)
        except (OSError, pa.ArrowException) as error:
            raise UserError(f"data.source.path: {path} is not a whole Parquet file ({one_line(error)})") from None
        rows += metadata.num_rows
        for group in range(metadata.num_row_groups):
            columns = (metadata.row_group(group).column(number) for number in range(metadata.num_columns))
            text += sum(c.total_uncompressed_size for c in columns if c.path_in_schema == settings.data.text_column)
    found = {"documents": rows, "raw_bytes": sum(sizes), "largest_raw_bytes": max(sizes)}
    return found | ({"text_bytes": text} if text else {})


# ---------------------------------------------------------------------- text


def lines(plan: dict[str, Any], settings: config.Config) -> list[str]:
    """The estimate for a terminal."""
    least = f"documents of {settings.data.min_tokens:,}+ tokens"
    raw, one = plan["raw_bytes"], plan["raw_at_a_time_bytes"]
    n_files = f" in {plan['shards']} files"
    if raw["value"] is None:
        said = "known when listed" if settings.data.source.kind == "hub" else "known when made"
    elif one["value"] == raw["value"]:
        said = f"{_size(raw)}{n_files}, all kept"
    else:
        said = f"{_size(raw)}{n_files}, dropped when prepared: {_size(one)} for each one at work"
    hours = ", ".join(f"{_time(h)} by {n}" for n, h in plan["wall_hours"].items())
    pace = f"{plan['mb_per_cpu_second']['value']:,.1f} MB of text a CPU second"
    work = LATER if plan["cpu_hours"]["value"] is None else f"about {_time(plan['cpu_hours']['value'])} of CPU"
    found = [
        ("documents", _count(plan["documents"]), ["documents"]),
        ("tokens", _count(plan["tokens"]), ["tokens"]),
        ("kept", f"{_count(plan['kept_tokens'])} (tokens in {least})", ["kept_tokens"]),
        ("raw shards", said, ["raw_bytes", "raw_at_a_time_bytes"]),
        ("token store", _size(plan["store_bytes"]), ["store_bytes"]),
        ("preparation", f"{work}, at {pace}", ["cpu_hours", "mb_per_cpu_second"]),
        ("", f"by jobs at a time: {hours}" if hours else "", []),
        ("epochs", _often(plan["epochs"], least), ["epochs"]),
        ("windows drawn", f"{plan['windows_per_model']:,} a model", []),
        ("  of a document", _often(plan["draws_a_document"], least), ["draws_a_document"]),
    ]
    return [
        f"  {title:<18}{text}{_origin(plan[key]['source'] for key in keys)}"
        for title, text, keys in found
        if text and not (title == "tokens" and plan["tokens"]["value"] is None)
    ]


def _origin(sources: Iterable[str]) -> str:
    found = list(dict.fromkeys(part for each in sources for part in each.split(", ") if part))
    return f"  [{', '.join(found)}]" if found else ""


def _count(figure: dict[str, Any]) -> str:
    return LATER if figure["value"] is None else f"{figure['bound']} {figure['value']:,.0f}".strip()


def _size(figure: dict[str, Any]) -> str:
    if figure["value"] is None:
        return LATER
    size, unit = (GIB, "GiB") if figure["value"] >= GIB else (MIB, "MiB")
    return f"{figure['bound']} {figure['value'] / size:,.1f} {unit}".strip()


def _time(hours: float) -> str:
    size, unit = (1, "h") if hours >= 1 else (60, "min") if hours >= 1 / 60 else (3600, "s")
    return f"{hours * size:,.1f} {unit}"


def _often(figure: dict[str, Any], least: str) -> str:
    if figure["value"] is None:
        return LATER
    text = f"{figure['value']:,.2f}"
    if figure["bound"] == "at least":
        return f"at least {text} (over all documents); over {least}: {LATER}"
    return f"{figure['bound']} {text}".strip()
