"""Files of the Hugging Face hub: pinned to a commit, resumed where they broke off, checked against what the hub states.

The hub states the SHA-256 of a file in large storage (LFS, Xet), and of a small file git's own hash: the SHA-1 of
"blob <size>", a zero byte, and the content.

Requests go through huggingface_hub, with its session, its token and its variables HF_HOME, HF_TOKEN, HF_ENDPOINT and
HF_HUB_OFFLINE. Bytes do not come by its `hf_hub_download`, which starts each try from nothing and compares no hash
(docs/data.md says what it does, and tests/data/test_hub_library.py shows it). Here a file grows beside its place, and
each try asks for the rest.
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

TRIES = 7  # in a row that bring no byte; between them 1, 2, 4, ... seconds: a minute in all
TOO_MANY_REQUESTS = 429
RATE_PAUSE = 60.0  # seconds after TOO_MANY_REQUESTS: the hub counts in windows of five minutes, and TRIES outlast one
LONGEST_PAUSE = 300.0  # seconds, whatever the hub asks for
PASSING = (408, TOO_MANY_REQUESTS, 500, 502, 503, 504)  # answers after which another try may fare better
UNAUTHORIZED, FORBIDDEN, RANGE_NOT_SATISFIABLE, PARTIAL_CONTENT = 401, 403, 416, 206
ANSWER_SECONDS = 60  # for an answer about files; a hub that is silent for longer counts as a try that failed
PATHS_AT_A_TIME = 100  # in one question about files
CHUNK = 2**20  # bytes read at a time
SECONDS_BETWEEN_LINES = 10.0
GIB = 2**30
COMMIT = re.compile(r"[0-9a-f]{40}")
HEX = re.compile(r"[0-9a-f]+")
HASHES = {64: "sha256", 40: "git_sha1"}  # by the number of hex digits
NAMED = 3  # missing files that are named in a message


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
    """The commit that the repository's revision names now, and size and hash of its files `paths` there.

    Offline, what the cache has of it. Raises UserError if one is missing or the hub does not say.
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
    found: dict[str, File] = {}
    for start in range(0, len(paths), PATHS_AT_A_TIME):
        ask = functools.partial(ask_for_files, commit, paths[start : start + PATHS_AT_A_TIME])
        found |= {file.path: file for file in _asking(repo, "the list of files", ask)}
    missing = [path for path in paths if path not in found]
    if missing:
        raise UserError(
            f"{repo}: {len(missing)} of {len(paths)} files are not there at commit {commit[:12]}: "
            f"{_some(missing)}; check {_keys(repo)}"
        )
    return commit, [found[path] for path in paths]


def _state_of_cache(repo: Repo, paths: list[str]) -> tuple[str, list[File]]:
    cached = {path: _cached(repo, repo.revision, path) for path in paths}
    missing = [path for path, place in cached.items() if place is None]
    if missing:
        _not_cached(repo, repo.revision, missing, len(paths))
    commit = cached[paths[0]].parents[paths[0].count("/")].name
    return commit, [_as_cached(path, place) for path, place in cached.items()]


def _as_cached(path: str, place: Path) -> File:
    """A file as the cache states it, by the name of the blob behind it; computed where the cache has no links."""
    blob = place.readlink().name if place.is_symlink() else ""
    named = HEX.fullmatch(blob) and len(blob) in HASHES
    return File.of(path, place.stat().st_size, blob if named else digest_of(place, "sha256"))


def _cached(repo: Repo, revision: str, path: str) -> Path | None:
    """The file in huggingface_hub's cache; None if it is not there."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(repo.name, path, revision=revision, repo_type=repo.kind)
    return Path(found) if isinstance(found, str) else None


def _offline() -> bool:
    from huggingface_hub import constants

    return constants.HF_HUB_OFFLINE


def endpoint() -> str:
    """The hub's address, without what may stand in it of a user and a password. Raises UserError if it is none."""
    from huggingface_hub import constants

    try:
        parts = urlsplit(constants.ENDPOINT)
        usable = parts.scheme in ("http", "https") and parts.hostname and (parts.port or True)
    except ValueError:
        usable = False
    if not usable:
        raise UserError(f"HF_ENDPOINT: {constants.ENDPOINT!r} is no address; it starts with http:// or https://")
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _asking(repo: Repo, what: str, ask: Callable[[], T]) -> T:
    """An answer about files, as the library reads it. Raises UserError if it is none that a hub gives."""
    from huggingface_hub import get_session
    from huggingface_hub.errors import HFValidationError

    def again() -> T:
        get_session().timeout = ANSWER_SECONDS  # the library's own is to wait for ever
        return ask()

    try:
        return _patiently(repo, what, again)
    except HFValidationError as error:
        raise UserError(f"{repo}: {one_line(error)[:300]}; check {repo.key}.repo") from None
    except (ValueError, LookupError, TypeError, AttributeError) as error:  # what is made of an answer of another kind
        _no_hub(repo, f"{type(error).__name__}: {one_line(error)[:100]}")


def _no_hub(repo: Repo, said: str) -> NoReturn:
    raise UserError(
        f"{repo}: {endpoint()} does not answer as a hub does ({said}); check HF_ENDPOINT, and proxies on the way"
    ) from None


def _patiently(repo: Repo, what: str, ask: Callable[[], T], progress: Callable[[], int] = lambda: 0) -> T:
    """`ask()`, and again after a pause as long as what fails may pass; TRIES times without `progress`."""
    from huggingface_hub.errors import HTTPError, OfflineModeIsEnabled  # the first: of the HTTP library that it uses

    failed, had = 0, progress()
    while True:
        try:
            return ask()
        except OfflineModeIsEnabled:
            _not_cached(repo, repo.revision, [what], 1)
        except HTTPError as error:
            answer = getattr(error, "response", None)
            if answer is not None and not _may_pass(answer):
                _refused(repo, what, error)
            failed, had = (1, progress()) if progress() > had else (failed + 1, had)
            said = f"HTTP {answer.status_code}" if answer is not None else one_line(error) or type(error).__name__
            if failed >= TRIES:
                raise UserError(
                    f"{repo}: {endpoint()} was asked for {what} {TRIES} times in vain ({said[:200]}); what is there "
                    "is kept: check the network and HF_ENDPOINT, and start again"
                ) from None
            pause = _pause(failed, answer)
            print(f"{repo.name}, {what}: {said[:200]}; trying again in {pause:.0f} s", file=sys.stderr, flush=True)
            time.sleep(pause)


def _may_pass(answer: Any) -> bool:
    """Whether another try may be answered otherwise: after PASSING, or when a signed address was refused elsewhere."""
    elsewhere = urlsplit(str(answer.url)).netloc.rpartition("@")[2] != urlsplit(endpoint()).netloc
    return answer.status_code in PASSING or (elsewhere and answer.status_code == FORBIDDEN)


def _pause(failed: int, answer: Any) -> float:
    """Seconds until the next try; what the hub asks for, if it does."""
    least = 2.0 ** (failed - 1)
    if answer is None:
        return least
    if answer.status_code == TOO_MANY_REQUESTS:
        least = RATE_PAUSE
    wanted = answer.headers.get("Retry-After", "")
    return min(max(least, float(wanted)), LONGEST_PAUSE) if wanted.isdigit() else least


def _refused(repo: Repo, what: str, error: Any) -> NoReturn:
    """Turn an answer that no other try will change into a UserError."""
    from huggingface_hub.errors import EntryNotFoundError, RepositoryNotFoundError, RevisionNotFoundError

    status = error.response.status_code
    if status in (UNAUTHORIZED, FORBIDDEN):
        said = (
            f"the hub refuses {what} (HTTP {status}): {repo.name} is private or gated, or there is no {repo.kind} of "
            "that name; set HF_TOKEN to a token that may read it, accept its terms on the hub, or check "
            f"{repo.key}.repo"
        )
    elif isinstance(error, RepositoryNotFoundError):
        said = f"the hub has no {repo.kind} of that name; check {repo.key}.repo, and HF_TOKEN if it is private"
    elif isinstance(error, RevisionNotFoundError):
        said = f"the hub has no such revision when asked for {what}; check {repo.key}.revision"
    elif isinstance(error, EntryNotFoundError):
        said = f"the hub has no {what}; check {_keys(repo)}"
    else:
        said = f"the hub answers HTTP {status} when asked for {what}; check {_keys(repo)} and HF_ENDPOINT"
    raise UserError(f"{repo}: {said}") from None


def _keys(repo: Repo) -> str:
    """Which keys of the config decide what is asked for."""
    keys = ("repo", "revision", "pattern") if repo.kind == "dataset" else ("repo", "revision")
    return ", ".join(f"{repo.key}.{key}" for key in keys)


def _some(paths: list[str]) -> str:
    return ", ".join(paths[:NAMED]) + (", ..." if len(paths) > NAMED else "")


def _not_cached(repo: Repo, revision: str, paths: list[str], asked: int) -> NoReturn:
    from huggingface_hub import constants

    command = f"hf download {repo.name} --repo-type {repo.kind} --revision {revision} {paths[0]}"
    raise UserError(
        f"{repo}: HF_HUB_OFFLINE is set, and {len(paths)} of {asked} files are not in the cache "
        f"{constants.HF_HUB_CACHE}: {_some(paths)}; unset it, or bring them there where there is a network: "
        f"`{command}{' ...' if len(paths) > 1 else ''}`"
    ) from None


# ------------------------------------------------------------------- fetching


def partial_path(out: Path, file: File) -> Path:
    """Where a file grows: beside its place, under the name of its content."""
    return out.with_name(f".{out.name}.{file.digest[:16]}.part")


def missing_bytes(out: Path, file: File) -> int:
    """How many bytes of a file are still to come."""
    try:
        return max(file.size - partial_path(out, file).stat().st_size, 0)
    except FileNotFoundError:
        return file.size


def fetch(repo: Repo, commit: str, file: File, out: Path) -> None:
    """Bring one file of a commit to `out`, whole and checked, or not at all.

    From huggingface_hub's cache if it is there, else from the hub. What came before a failure or a kill stays beside
    `out` in a hidden file, and the next call asks for the rest. Raises UserError if the hub cannot be asked, if another
    process fetches the same file, or if what came has not the stated size and hash; that is deleted, and `out` is as it
    was before.
    """
    partial = partial_path(out, file)
    for left in out.parent.glob(f".{glob.escape(out.name)}.*.part"):  # of another content
        if left != partial:
            left.unlink()
    with full_disk_named(out), _alone(partial, out) as stream:
        if not _from_cache(repo, commit, file, stream, partial):
            if _offline():
                _not_cached(repo, commit, [file.path], 1)
            _from_hub(repo, commit, file, stream)
            stream.flush()
            if fault := problem(file, partial):
                partial.unlink()
                raise UserError(
                    f"{repo}: {file.path} came and {fault}; it was deleted: start again, and if it comes so again, "
                    f"look for what changes it on the way from {endpoint()}"
                )
        fsync_file(partial)
        os.replace(partial, out)
        fsync_directory(out.parent)


@contextmanager
def _alone(partial: Path, out: Path) -> Iterator[IO[bytes]]:
    """The growing file, open at its end, for one process; it goes if nothing came."""
    busy = f"{out}: another process is fetching this file; wait for it or stop it"
    with locked(partial, busy=busy, mode="ab") as stream:  # without locks, the check of the hash is still there
        try:
            yield stream
        finally:
            if partial.exists() and partial.stat().st_size == 0:
                partial.unlink()


def _from_cache(repo: Repo, commit: str, file: File, stream: IO[bytes], partial: Path) -> bool:
    """Take the file from huggingface_hub's cache, if it is there and what the hub states."""
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
        raise UserError(f"{message} and bring it there again, or unset HF_HUB_OFFLINE")
    print(f"{message}; asking the hub instead", file=sys.stderr, flush=True)
    return False


def _from_hub(repo: Repo, commit: str, file: File, stream: IO[bytes]) -> None:
    """Append what is missing of the file, in as many tries as it takes."""
    from huggingface_hub import get_session, hf_hub_url, hf_raise_for_status
    from huggingface_hub.constants import HF_HUB_DOWNLOAD_TIMEOUT
    from huggingface_hub.errors import HTTPError
    from huggingface_hub.utils import build_hf_headers

    url = hf_hub_url(repo.name, file.path, repo_type=repo.kind, revision=commit)
    begun, said = time.monotonic(), time.monotonic()
    brought = 0

    def have() -> int:
        stream.flush()
        return os.fstat(stream.fileno()).st_size

    def ask() -> None:
        nonlocal brought, said
        if (there := have()) >= file.size:
            return
        headers = {**build_hf_headers(library_name="tokencodes"), "Accept-Encoding": "identity"}
        if there:
            headers["Range"] = f"bytes={there}-"
        with get_session().stream("GET", url, headers=headers, timeout=HF_HUB_DOWNLOAD_TIMEOUT) as answer:
            if answer.status_code == RANGE_NOT_SATISFIABLE:
                return  # the hub's file is shorter than it states: what is there has not the stated size
            hf_raise_for_status(answer)
            if there and answer.status_code != PARTIAL_CONTENT:  # the whole file, though the rest was asked for
                stream.truncate(0)
                there = 0
            for chunk in answer.iter_bytes():
                stream.write(chunk)
                there, brought = there + len(chunk), brought + len(chunk)
                if there > file.size:
                    return
                if time.monotonic() - said > SECONDS_BETWEEN_LINES:
                    said = time.monotonic()
                    pace = brought / (said - begun) / 1e6
                    line = f"download {file.path}: {there / GIB:.2f} of {file.size / GIB:.2f} GiB, {pace:.1f} MB/s"
                    print(line, file=sys.stderr, flush=True)
        if there < file.size:
            raise HTTPError(f"the answer ended after {there:,} of {file.size:,} bytes")

    _patiently(repo, file.path, ask, have)


# ------------------------------------------------------------------- checking


def digest_of(path: Path, kind: str) -> str:
    """Hex digest of a file: `sha256`, or `git_sha1`, by which git names a blob."""
    if kind == "sha256":
        return sha256_file(path)
    with open(path, "rb") as file:
        hasher = hashlib.sha1(b"blob %d\0" % os.fstat(file.fileno()).st_size, usedforsecurity=False)
        while chunk := file.read(CHUNK):
            hasher.update(chunk)
        return hasher.hexdigest()


def problem(file: File, path: Path) -> str | None:
    """Why `path` is not `file`; None if it is."""
    if (size := path.stat().st_size) != file.size:
        return f"has {size:,} bytes, the hub states {file.size:,}"
    if (digest := digest_of(path, file.hash)) != file.digest:
        return f"has the {file.hash} {digest}, the hub states {file.digest}"
    return None
