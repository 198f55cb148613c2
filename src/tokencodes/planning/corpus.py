"""What a corpus takes, and how often a model sees it: disk, CPU-hours, epochs. For `tokencodes plan`.

Nothing is fetched. Each figure names its source, the first of these that has it: `measured` (shards that are already
prepared), `listing` (what the hub stated), `footers` (of local Parquet files), `stated` (data.expected in the config),
`assumed` (the constants below). If only some shards are prepared, their mean times the number of shards counts, and
`listing` and `footers` come before it. What only the preparation can tell is None, with a bound where there is one.
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
from tokencodes.files import expanded
from tokencodes.layout import Layout

# MB of text per CPU second of the whole preparation. benchmarks/encode.py measured 34 (docs/data.md), on a corpus in
# which words repeat more often than on the web.
MB_PER_CPU_SECOND = 20.0
BYTES_PER_TOKEN = 4.4  # of English web text in UTF-8, with the paper's vocabulary
RAW_SHARE = 0.6  # size of a Parquet file per size of its text, with Snappy
ID_BYTES = 47  # of an id such as "<urn:uuid:...>"
ROW_BYTES = 8 + 8 + 8  # per document in the store beside tokens and id: key, offset of its id, offset of its tokens
JOBS = (1, 8, 32, 128)  # simultaneous jobs for which hours are given
MB, SECONDS_PER_HOUR = 10**6, 3600
MIB, GIB = 2**20, 2**30
LATER = "known when prepared"


@dataclass(frozen=True)
class Figure:
    """A number, its source, and its bound: "" (exact), "about", "at least" or "at most"."""

    value: float | None
    source: str = ""
    bound: str = ""


UNKNOWN = Figure(None)
Figures = dict[str, Figure]
MEASURED, LISTING, FOOTERS, STATED, ASSUMED = "measured", "listing", "footers", "stated", "assumed"
PLAIN = (
    *("documents", "tokens", "text_bytes", "raw_bytes"),
    *("kept_documents", "kept_tokens", "train_documents", "train_tokens"),
)


def estimate(settings: config.Config, tokens_per_model: int) -> dict[str, Any]:
    """The figures as plain values: bytes, tokens, documents, hours. Raises UserError naming a damaged file."""
    shards = source.shard_names(settings.data.source)
    known = _with_assumptions(_with_kept_share(_known(settings, shards), settings))
    pace = known.get("mb_per_cpu_second", Figure(MB_PER_CPU_SECOND, ASSUMED))
    hours = _quotient(known.get("text_bytes", UNKNOWN), pace, 1 / MB / SECONDS_PER_HOUR)
    windows = tokens_per_model // settings.model.context_length
    figures = {key: known.get(key, UNKNOWN) for key in PLAIN} | {
        "raw_at_a_time_bytes": _raw_at_a_time(settings, known, len(shards)),
        "store_bytes": known.get("store_bytes") or _store(settings, known),
        "mb_per_cpu_second": pace,
        "cpu_hours": hours,
        "epochs": _passes(tokens_per_model, known.get("train_tokens"), known.get("tokens")),
        "draws_a_document": _passes(windows, known.get("train_documents"), known.get("documents")),
    }
    return {
        "shards": len(shards),
        "windows_per_model": windows,
        **{key: asdict(figure) for key, figure in figures.items()},
        "wall_hours": {
            str(n): hours.value / n for n in JOBS if hours.value is not None and (n == 1 or n <= len(shards))
        },
    }


def _known(settings: config.Config, shards: list[str]) -> Figures:
    """What shards, the hub, files or the config state."""
    measured = _measured(settings, shards)
    origin = measured.pop("source")
    whole = origin == MEASURED
    known = {key: Figure(value, origin, "" if whole else "about") for key, value in measured.items()}
    for origin, values in ((LISTING, _listing(settings, shards)), (FOOTERS, _footers(settings))):
        stated = {key: Figure(value, origin) for key, value in values.items()}
        known = stated | known if whole else known | stated  # of all shards: better than some shards' mean
    expected = settings.data.expected.model_dump(exclude={"kept_share"})
    return {key: Figure(value, STATED) for key, value in expected.items() if value is not None} | known


def _with_kept_share(known: Figures, settings: config.Config) -> Figures:
    """With what is kept and trained on, if the config states the share of tokens that is kept.

    The share of documents follows from it only if everything is kept.
    """
    share = settings.data.expected.kept_share
    if share is None:
        return known
    train = 1 - settings.data.split.threshold
    kept = {}
    for key in ("tokens", "documents") if share == 1 else ("tokens",):
        if key in known and f"kept_{key}" not in known:
            kept[f"kept_{key}"] = Figure(round(known[key].value * share), STATED, "about")
            kept[f"train_{key}"] = Figure(round(known[key].value * share * train), STATED, "about")
    return known | kept


def _with_assumptions(known: Figures) -> Figures:
    """With the size of the text and of its files, from the number of tokens."""
    assumed = {}
    if "text_bytes" not in known and "tokens" in known:
        assumed["text_bytes"] = Figure(round(known["tokens"].value * BYTES_PER_TOKEN), ASSUMED, "about")
    text = known.get("text_bytes", assumed.get("text_bytes"))
    if "raw_bytes" not in known and text is not None:
        assumed["raw_bytes"] = Figure(round(text.value * RAW_SHARE), ASSUMED, "about")
    return known | assumed


def _passes(n: int, train: Figure | None, everything: Figure | None) -> Figure:
    """How often `n` draws pass over what is trained on; if that is not known, at least as often as over everything."""
    if train is not None and train.value:
        return Figure(n / train.value, train.source, train.bound)
    if everything is not None and everything.value:
        return Figure(n / everything.value, everything.source, "at least")
    return UNKNOWN


def _quotient(top: Figure, bottom: Figure, factor: float) -> Figure:
    if top.value is None or not bottom.value:
        return UNKNOWN
    sources = dict.fromkeys([top.source, bottom.source])
    return Figure(top.value / bottom.value * factor, ", ".join(sources), "about")


def _raw_at_a_time(settings: config.Config, known: Figures, n_shards: int) -> Figure:
    """Raw shards on the disk at a time: all, if they are kept; else one per job that prepares (here: one job)."""
    raw = known.get("raw_bytes", UNKNOWN)
    if settings.data.source.kind != "hub" or settings.data.source.keep_raw or raw.value is None:
        return raw
    if (largest := known.get("largest_raw_bytes")) is not None:
        return largest
    return Figure(round(raw.value / n_shards), raw.source, "about")


def _store(settings: config.Config, known: Figures) -> Figure:
    """Tokens and rows of the store; if it is not known what is kept, those of everything."""
    width = store.token_dtype(settings.model.vocab_size).itemsize
    for tokens, documents, bound in (("kept_tokens", "kept_documents", "about"), ("tokens", "documents", "at most")):
        if (figure := known.get(tokens)) is not None:
            rows = known.get(documents, known.get("documents", UNKNOWN))
            return Figure(figure.value * width + (rows.value or 0) * (ROW_BYTES + ID_BYTES), figure.source, bound)
    return UNKNOWN


# ------------------------------------------------------------------- sources


def _measured(settings: config.Config, shards: list[str]) -> dict[str, Any]:
    """Sums over the shards that this config has prepared; scaled to all shards if some are missing."""
    layout = Layout.of(settings.results, settings.name)
    expected = data_digest(settings.data, settings.model.vocab_size)
    manifests, timings = [], []
    for shard in shards:
        folder = Path(layout.shard(shard))
        if not (folder / MANIFEST).is_file():
            continue
        manifest = ShardManifest.read(folder / MANIFEST)
        if manifest.data_sha256 != expected:  # of another config
            continue
        manifests.append(manifest)
        if (folder / TIMING).is_file():
            timings.append(ShardTiming.read(folder / TIMING))
    if not manifests:
        return {"source": MEASURED}
    scale = len(shards) / len(manifests)

    counts = total(manifests)
    figures = {
        "source": MEASURED if scale == 1 else f"{MEASURED} in {len(manifests)} of {len(shards)} shards",
        "documents": round(counts.rows_in * scale),
        "kept_documents": round(counts.kept * scale),
        "kept_tokens": round(counts.tokens * scale),
        "train_documents": round(counts.train.documents * scale),
        "train_tokens": round(counts.train.tokens * scale),
        "store_bytes": round(sum(file.bytes for each in manifests for file in each.files.values()) * scale),
    }
    if len(timings) < len(manifests):
        return figures
    n_bytes, cpu = sum(each.encoded_bytes for each in timings), sum(each.cpu_s for each in timings)
    raw = [each.raw_bytes for each in timings]
    figures |= {"raw_bytes": round(sum(raw) * scale), "largest_raw_bytes": max(raw)}
    return figures | ({"text_bytes": round(n_bytes * scale), "mb_per_cpu_second": n_bytes / MB / cpu} if cpu else {})


def _listing(settings: config.Config, shards: list[str]) -> dict[str, int]:
    """Sizes that the hub stated, if the corpus is listed already."""
    if settings.data.source.kind != "hub":
        return {}
    path = Path(Layout.of(settings.results, settings.name).data) / listing.listing_name(settings.data.source)
    if not path.is_file():
        return {}
    sizes = [file.size for file in listing.read(path, settings.data.source).files.values()]
    return {"raw_bytes": sum(sizes), "largest_raw_bytes": max(sizes)} if len(sizes) == len(shards) else {}


def _footers(settings: config.Config) -> dict[str, int]:
    """Rows, size on disk and size of the texts of local files, from the ends of the files alone."""
    if settings.data.source.kind != "local":
        return {}
    sizes, rows, text = [], 0, 0
    for shard in source.shard_names(settings.data.source):
        path = expanded(settings.data.source.path) / f"{shard}.parquet"
        try:
            metadata = pq.read_metadata(path)
            sizes.append(path.stat().st_size)
        except (OSError, pa.ArrowException) as error:
            raise UserError(f"data.source.path: {path} is not a whole Parquet file ({one_line(error)})") from None
        rows += metadata.num_rows
        for group in range(metadata.num_row_groups):
            columns = (metadata.row_group(group).column(number) for number in range(metadata.num_columns))
            text += sum(c.total_uncompressed_size for c in columns if c.path_in_schema == settings.data.text_column)
    figures = {"documents": rows, "raw_bytes": sum(sizes), "largest_raw_bytes": max(sizes)}
    return figures | ({"text_bytes": text} if text else {})


# ---------------------------------------------------------------------- text


def lines(plan: dict[str, Any], settings: config.Config) -> list[str]:
    """The estimate for a terminal."""
    least = f"documents of {settings.data.min_tokens:,}+ tokens"
    raw, one = plan["raw_bytes"], plan["raw_at_a_time_bytes"]
    n_files = f" in {plan['shards']} files"
    if raw["value"] is None:
        raw_text = "known when listed" if settings.data.source.kind == "hub" else "known when made"
    elif one["value"] == raw["value"]:
        raw_text = f"{_size(raw)}{n_files}, all kept"
    else:
        raw_text = f"{_size(raw)}{n_files}, deleted when prepared: {_size(one)} per job at work"
    hours = ", ".join(f"{_time(h)} by {n}" for n, h in plan["wall_hours"].items())
    pace = f"{plan['mb_per_cpu_second']['value']:,.1f} MB of text per CPU second"
    work = LATER if plan["cpu_hours"]["value"] is None else f"about {_time(plan['cpu_hours']['value'])} of CPU"
    rows = [
        ("documents", _count(plan["documents"]), ["documents"]),
        ("tokens", _count(plan["tokens"]), ["tokens"]),
        ("kept", f"{_count(plan['kept_tokens'])} (tokens in {least})", ["kept_tokens"]),
        ("raw shards", raw_text, ["raw_bytes", "raw_at_a_time_bytes"]),
        ("token store", _size(plan["store_bytes"]), ["store_bytes"]),
        ("preparation", f"{work}, at {pace}", ["cpu_hours", "mb_per_cpu_second"]),
        ("", f"by simultaneous jobs: {hours}" if hours else "", []),
        ("epochs", _often(plan["epochs"], least), ["epochs"]),
        ("windows drawn", f"{plan['windows_per_model']:,} per model", []),
        ("  per document", _often(plan["draws_a_document"], least), ["draws_a_document"]),
    ]
    return [
        f"  {title:<18}{text}{_origin(plan[key]['source'] for key in keys)}"
        for title, text, keys in rows
        if text and not (title == "tokens" and plan["tokens"]["value"] is None)
    ]


def _origin(sources: Iterable[str]) -> str:
    parts = list(dict.fromkeys(part for source in sources for part in source.split(", ") if part))
    return f"  [{', '.join(parts)}]" if parts else ""


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
