"""Files of the Hugging Face hub: pinned to a commit, resumed where they broke off, checked against what the hub states.

The hub states the SHA-256 of a file in large storage (LFS, Xet), and of a small file git's own hash: the SHA-1 of
"blob <size>", a zero byte, and the content.

Questions, addresses, tokens, proxies, errors and the cache are those of huggingface_hub, with its variables HF_HOME,
HF_TOKEN, HF_ENDPOINT and HF_HUB_OFFLINE. Content is not fetched by its `hf_hub_download`: that starts each attempt at
the first byte and compares no hash (docs/data.md gives the facts, tests/data/test_hub.py shows them). Here a file grows
beside its destination, and each attempt asks for the rest.
"""

import functools
import glob
import hashlib
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, NoReturn, TypeVar
from urllib.parse import urlsplit

from tokencodes.data.spec import HubTokenizer
from tokencodes.errors import UserError, one_line
from tokencodes.files import (
    fsync_directory,
    fsync_file,
    full_disk_named,
    locked,
    sha256_file,
)

T = TypeVar("T")

TRIES = 7  # attempts in a row that bring no byte; the pauses between them are 1, 2, 4, ... seconds, a minute in all
TOO_MANY_REQUESTS = 429
RATE_PAUSE = 60.0  # seconds after TOO_MANY_REQUESTS: the hub counts in windows of five minutes, and TRIES last longer
LONGEST_PAUSE = 300.0  # seconds, whatever the hub asks for
PASSING = (408, TOO_MANY_REQUESTS, 500, 502, 503, 504)  # answers after which another attempt may succeed
UNAUTHORIZED, FORBIDDEN, RANGE_NOT_SATISFIABLE, PARTIAL_CONTENT = 401, 403, 416, 206
ANSWER_SECONDS = 60  # for an answer about files; longer silence counts as a failed attempt
PATHS_AT_A_TIME = 100  # in one question about files
CHUNK = 2**20  # bytes read at a time
SECONDS_BETWEEN_LINES = 10.0  # of progress
GIB = 2**30
COMMIT = re.compile(r"[0-9a-f]{40}")
HEX = re.compile(r"[0-9a-f]+")
HASHES = {64: "sha256", 40: "git_sha1"}  # by the number of hex digits
NAMED = 3  # missing files that a message names
SHOWN = 200  # characters of a library's message that ours quotes


@dataclass(frozen=True)
class Repo:
    """A repository of the hub at a revision; `key` is the part of the config that asks for it."""

    key: str
    name: str
    kind: Literal["dataset", "model"]
    revision: str

    def __str__(self) -> str:
        return f"{self.key}: {self.name} at {self.revision}"


@dataclass(frozen=True)
class File:
    """A file of a repository as the hub states it: `digest` is hex, of the kind `hash` (sha256 or git_sha1)."""

    path: str
    size: int
    hash: str
    digest: str

    @classmethod
    def of(cls, path: str, size: int, digest: str) -> "File":
        """The file whose hash is `digest`. Raises ValueError if that is no hash, or `size` no size."""
        if not (isinstance(size, int) and isinstance(digest, str) and HEX.fullmatch(digest) and len(digest) in HASHES):
            raise ValueError(f"{path} with {size!r} bytes and the hash {digest!r}")
        return cls(path, size, HASHES[len(digest)], digest)


def model(spec: HubTokenizer) -> Repo:
    """The repository of a tokenizer."""
    return Repo("data.tokenizer", spec.repo, "model", spec.revision)


# --------------------------------------------------------------------- asking


def state(repo: Repo, paths: list[str]) -> tuple[str, list[File]]:
    """The commit that the repository's revision names now, and size and hash of its files `paths` at that commit.

    Offline, as the cache has them. Raises UserError if a file is missing or the hub does not answer.
    """
    if _offline():
        return _state_of_cache(repo, paths)
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import RepoFile

    endpoint()
    api, of = HfApi(), {"repo_type": repo.kind}

    def ask_for_commit() -> str:
        return api.repo_info(repo.name, revision=repo.revision, timeout=ANSWER_SECONDS, **of).sha or ""

    def ask_for_files(commit: str, some: list[str]) -> list[File]:
        infos = api.get_paths_info(repo.name, some, revision=commit, **of)
        files = (info for info in infos if isinstance(info, RepoFile))
        return [File.of(info.path, info.size, info.lfs.sha256 if info.lfs else info.blob_id) for info in files]

    commit = _asking(repo, "the revision", ask_for_commit)
    if not COMMIT.fullmatch(commit):
        _no_hub(repo, f"the commit is {commit!r}")
    files: dict[str, File] = {}
    for start in range(0, len(paths), PATHS_AT_A_TIME):
        ask = functools.partial(ask_for_files, commit, paths[start : start + PATHS_AT_A_TIME])
        files |= {file.path: file for file in _asking(repo, "the list of files", ask)}
    missing = [path for path in paths if path not in files]
    if missing:
        raise UserError(
            f"{repo}: {len(missing)} of {len(paths)} files are missing at commit {commit[:12]}: "
            f"{_some(missing)}; check {_keys(repo)}"
        )
    return commit, [files[path] for path in paths]


def _state_of_cache(repo: Repo, paths: list[str]) -> tuple[str, list[File]]:
    cached = {path: _cached(repo, repo.revision, path) for path in paths}
    missing = [path for path, place in cached.items() if place is None]
    if missing:
        _not_cached(repo, repo.revision, missing, len(paths))
    commit = cached[paths[0]].parents[paths[0].count("/")].name
    return commit, [_as_cached(path, place) for path, place in cached.items()]


def _as_cached(path: str, place: Path) -> File:
    """A file as the cache states it, by the name of the blob behind the link; hashed here if the cache has no links."""
    blob = place.readlink().name if place.is_symlink() else ""
    named = HEX.fullmatch(blob) and len(blob) in HASHES
    return File.of(path, place.stat().st_size, blob if named else digest_of(place, "sha256"))


def _cached(repo: Repo, revision: str, path: str) -> Path | None:
    """The path of a file in huggingface_hub's cache; None if it is not cached."""
    from huggingface_hub import try_to_load_from_cache

    cached = try_to_load_from_cache(repo.name, path, revision=revision, repo_type=repo.kind)
    return Path(cached) if isinstance(cached, str) else None


def _offline() -> bool:
    from huggingface_hub import constants

    return constants.HF_HUB_OFFLINE


def endpoint() -> str:
    """The hub's address, without a user name and password. Raises UserError if HF_ENDPOINT is not an address."""
    from huggingface_hub import constants

    try:
        parts = urlsplit(constants.ENDPOINT)
        usable = parts.scheme in ("http", "https") and parts.hostname and (parts.port or True)
    except ValueError:
        usable = False
    if not usable:
        raise UserError(f"HF_ENDPOINT: {constants.ENDPOINT!r} is not an address; it starts with http:// or https://")
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _asking(repo: Repo, what: str, ask: Callable[[], T]) -> T:
    """An answer about files, as the library parses it. Raises UserError if it is not the answer of a hub."""
    from huggingface_hub import get_session
    from huggingface_hub.errors import HFValidationError

    def again() -> T:
        get_session().timeout = ANSWER_SECONDS  # the library's default is to wait for ever
        return ask()

    try:
        return _patiently(repo, what, again)
    except HFValidationError as error:
        raise UserError(f"{repo}: {one_line(error)[:SHOWN]}; check {repo.key}.repo") from None
    except (ValueError, LookupError, TypeError, AttributeError) as error:  # an answer of another kind, parsed
        _no_hub(repo, f"{type(error).__name__}: {one_line(error)[:SHOWN]}")


def _no_hub(repo: Repo, reason: str) -> NoReturn:
    raise UserError(
        f"{repo}: {endpoint()} does not answer as a hub does ({reason}); check HF_ENDPOINT, and proxies on the way"
    ) from None


def _patiently(repo: Repo, what: str, ask: Callable[[], T], progress: Callable[[], int] = lambda: 0) -> T:
    """Call `ask` until it succeeds, with a pause after each failure that may pass.

    Raises UserError after TRIES failures in a row during which `progress` (bytes) did not grow.
    """
    from huggingface_hub.errors import HTTPError, OfflineModeIsEnabled  # HTTPError is that of its HTTP library

    failures, before = 0, progress()
    while True:
        try:
            return ask()
        except OfflineModeIsEnabled:
            _not_cached(repo, repo.revision, [what], 1)
        except HTTPError as error:
            answer = getattr(error, "response", None)
            if answer is not None and not _may_pass(answer):
                _refused(repo, what, error)
            failures, before = (1, progress()) if progress() > before else (failures + 1, before)
            reason = f"HTTP {answer.status_code}" if answer is not None else one_line(error) or type(error).__name__
            if failures >= TRIES:
                raise UserError(
                    f"{repo}: {endpoint()} was asked for {what} {TRIES} times without success ({reason[:SHOWN]}); "
                    "what was fetched is kept: check the network and HF_ENDPOINT, and start again"
                ) from None
            pause = _pause(failures, answer)
            print(f"{repo.name}, {what}: {reason[:SHOWN]}; trying again in {pause:.0f} s", file=sys.stderr, flush=True)
            time.sleep(pause)


def _may_pass(answer: Any) -> bool:
    """Whether another attempt may succeed: after PASSING, and after a content network refused a signed address.

    Such an address expires; the next attempt gets a new one from the hub.
    """
    elsewhere = urlsplit(str(answer.url)).netloc.rpartition("@")[2] != urlsplit(endpoint()).netloc
    return answer.status_code in PASSING or (elsewhere and answer.status_code == FORBIDDEN)


def _pause(failures: int, answer: Any) -> float:
    """Seconds until the next attempt: twice as many each time, or what the hub asks for if that is more."""
    least = 2.0 ** (failures - 1)
    if answer is None:
        return least
    if answer.status_code == TOO_MANY_REQUESTS:
        least = RATE_PAUSE
    requested = answer.headers.get("Retry-After", "")
    return min(max(least, float(requested)), LONGEST_PAUSE) if requested.isdigit() else least


def _refused(repo: Repo, what: str, error: Any) -> NoReturn:
    """Raise the UserError for an answer that another attempt would not change."""
    from huggingface_hub.errors import EntryNotFoundError, RepositoryNotFoundError, RevisionNotFoundError

    status = error.response.status_code
    if status in (UNAUTHORIZED, FORBIDDEN):
        reason = (
            f"the hub refuses {what} (HTTP {status}): {repo.name} is private or gated, or there is no {repo.kind} of "
            "that name; set HF_TOKEN to a token that may read it, accept its terms on the hub, or check "
            f"{repo.key}.repo"
        )
    elif isinstance(error, RepositoryNotFoundError):
        reason = f"the hub has no {repo.kind} of that name; check {repo.key}.repo, and HF_TOKEN if it is private"
    elif isinstance(error, RevisionNotFoundError):
        reason = f"the hub has no such revision when asked for {what}; check {repo.key}.revision"
    elif isinstance(error, EntryNotFoundError):
        reason = f"the hub has no {what}; check {_keys(repo)}"
    else:
        reason = f"the hub answers HTTP {status} when asked for {what}; check {_keys(repo)} and HF_ENDPOINT"
    raise UserError(f"{repo}: {reason}") from None


def _keys(repo: Repo) -> str:
    """The keys of the config that name what is asked for."""
    keys = ("repo", "revision", "pattern") if repo.kind == "dataset" else ("repo", "revision")
    return ", ".join(f"{repo.key}.{key}" for key in keys)


def _some(paths: list[str]) -> str:
    return ", ".join(paths[:NAMED]) + (", ..." if len(paths) > NAMED else "")


def _not_cached(repo: Repo, revision: str, paths: list[str], asked: int) -> NoReturn:
    from huggingface_hub import constants

    command = f"hf download {repo.name} --repo-type {repo.kind} --revision {revision} {paths[0]}"
    raise UserError(
        f"{repo}: HF_HUB_OFFLINE is set, and {len(paths)} of {asked} files are not in the cache "
        f"{constants.HF_HUB_CACHE}: {_some(paths)}; unset it, or download them where there is a network: "
        f"`{command}{' ...' if len(paths) > 1 else ''}`"
    ) from None


# ------------------------------------------------------------------- fetching


def partial_path(out: Path, file: File) -> Path:
    """Where a file grows: beside `out`, under a name that says its content."""
    return out.with_name(f".{out.name}.{file.digest[:16]}.part")


def missing_bytes(out: Path, file: File) -> int:
    """How many bytes of a file are still to come."""
    try:
        return max(file.size - partial_path(out, file).stat().st_size, 0)
    except FileNotFoundError:
        return file.size


def fetch(repo: Repo, commit: str, file: File, out: Path) -> None:
    """Bring one file of a commit to `out`, whole and checked, or not at all.

    It comes from huggingface_hub's cache, or else from the hub. After a failure or a kill, what was fetched stays in a
    hidden file beside `out`, and the next call asks for the rest. Raises UserError if the hub does not answer, if
    another process fetches the same file, or if the content has not the stated size and hash; then it is deleted, and
    `out` is as it was before.
    """
    partial = partial_path(out, file)
    for other in out.parent.glob(f".{glob.escape(out.name)}.*.part"):  # begun of another content
        if other != partial:
            other.unlink()
    with full_disk_named(out), _growing(partial, out) as stream:
        if not _from_cache(repo, commit, file, stream, partial):
            if _offline():
                _not_cached(repo, commit, [file.path], 1)
            _from_hub(repo, commit, file, stream)
            stream.flush()
            if fault := problem(file, partial):
                partial.unlink()
                raise UserError(
                    f"{repo}: {file.path} was fetched and {fault}; it was deleted: start again, and if this happens "
                    f"again, look for what changes it on the way from {endpoint()}"
                )
        fsync_file(partial)
        os.replace(partial, out)
    fsync_directory(out.parent)


@contextmanager
def _growing(partial: Path, out: Path) -> Iterator[IO[bytes]]:
    """The growing file, open at its end, for one process; removed if it stays empty."""
    busy = f"{out}: another process is fetching this file; wait for it or stop it"
    with locked(partial, busy=busy, mode="ab") as stream:  # without locks, the hash still guards it
        try:
            yield stream
        finally:
            if partial.exists() and partial.stat().st_size == 0:
                partial.unlink()


def _from_cache(repo: Repo, commit: str, file: File, stream: IO[bytes], partial: Path) -> bool:
    """Whether huggingface_hub's cache has the file with the stated content, which is then copied to `stream`."""
    cached = _cached(repo, commit, file.path)
    if cached is None:
        return False
    stream.truncate(0)
    with open(cached, "rb") as whole:
        shutil.copyfileobj(whole, stream, CHUNK)
    stream.flush()
    fault = problem(file, partial)
    if fault is None:
        return True
    stream.truncate(0)
    message = f"{repo}: {cached} in huggingface_hub's cache {fault}; delete it"
    if _offline():
        raise UserError(f"{message} and download it again, or unset HF_HUB_OFFLINE")
    print(f"{message}; asking the hub instead", file=sys.stderr, flush=True)
    return False


def _from_hub(repo: Repo, commit: str, file: File, stream: IO[bytes]) -> None:
    """Append the missing bytes of the file, in as many attempts as it takes."""
    from huggingface_hub import get_session, hf_hub_url, hf_raise_for_status
    from huggingface_hub.constants import HF_HUB_DOWNLOAD_TIMEOUT
    from huggingface_hub.errors import HTTPError
    from huggingface_hub.utils import build_hf_headers

    url = hf_hub_url(repo.name, file.path, repo_type=repo.kind, revision=commit)
    progress = _Progress(file)

    def size() -> int:
        stream.flush()
        return os.fstat(stream.fileno()).st_size

    def ask() -> None:
        if (n_bytes := size()) >= file.size:
            return
        headers = {**build_hf_headers(library_name="tokencodes"), "Accept-Encoding": "identity"}
        if n_bytes:
            headers["Range"] = f"bytes={n_bytes}-"
        with get_session().stream("GET", url, headers=headers, timeout=HF_HUB_DOWNLOAD_TIMEOUT) as answer:
            if answer.status_code == RANGE_NOT_SATISFIABLE:
                return  # the file is shorter than the hub states; the check of its size says so
            hf_raise_for_status(answer)
            if n_bytes and answer.status_code != PARTIAL_CONTENT:  # the whole file, though the rest was asked for
                stream.truncate(0)
                n_bytes = 0
            for chunk in answer.iter_bytes():
                stream.write(chunk)
                n_bytes += len(chunk)
                if n_bytes > file.size:
                    return
                progress.add(len(chunk), n_bytes)
        if n_bytes < file.size:
            raise HTTPError(f"the answer ended after {n_bytes:,} of {file.size:,} bytes")

    _patiently(repo, file.path, ask, size)


class _Progress:
    """A line on stderr every SECONDS_BETWEEN_LINES, with the pace of this process."""

    def __init__(self, file: File):
        self.file, self.fetched = file, 0
        self.start = self.last_line = time.monotonic()

    def add(self, n_bytes: int, size: int) -> None:
        """Count `n_bytes` more; the file has `size` bytes now."""
        self.fetched += n_bytes
        now = time.monotonic()
        if now - self.last_line > SECONDS_BETWEEN_LINES:
            self.last_line = now
            pace = self.fetched / (now - self.start) / 1e6
            line = f"download {self.file.path}: {size / GIB:.2f} of {self.file.size / GIB:.2f} GiB, {pace:.1f} MB/s"
            print(line, file=sys.stderr, flush=True)


# ------------------------------------------------------------------- checking


def digest_of(path: Path, kind: str) -> str:
    """Hex digest of a file, of the kind `sha256` or `git_sha1` (git's name of a blob)."""
    if kind == "sha256":
        return sha256_file(path)
    with open(path, "rb") as file:
        hasher = hashlib.sha1(b"blob %d\0" % os.fstat(file.fileno()).st_size, usedforsecurity=False)
        while chunk := file.read(CHUNK):
            hasher.update(chunk)
        return hasher.hexdigest()


def problem(file: File, path: Path) -> str | None:
    """In which way the content of `path` is not that of `file`; None if it is."""
    if (size := path.stat().st_size) != file.size:
        return f"has {size:,} bytes, the hub states {file.size:,}"
    if (digest := digest_of(path, file.hash)) != file.digest:
        return f"has the {file.hash} {digest}, the hub states {file.digest}"
    return None
