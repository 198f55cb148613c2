"""A hub on this machine, for tests: the answers that huggingface_hub asks for, from a server with switches for faults.

Files in large storage are redirected to a second origin, as the real hub does to its content network; small ones are
served at once. Every request is kept. The layout of requests and answers is that of huggingface_hub's own client.
"""

import functools
import hashlib
import json
import random
import re
import threading
import urllib.parse
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from huggingface_hub import constants

SIZE = 3_000_000
PATTERN = "part/train-{shard:05d}-of-00002.parquet"
SHARDS = ["shard-00000-of-00002", "shard-00001-of-00002"]
API = re.compile(r"/api/(models|datasets)/([^/]+/[^/]+)/(revision|paths-info)/([^/]+)")
RESOLVE = re.compile(r"/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)")
BLOB = re.compile(r"/blob/([0-9a-f]{64})")


class Server(ThreadingHTTPServer):
    """Without a word about clients that go away, and without waiting for them."""

    daemon_threads = True

    def handle_error(self, *_) -> None:
        pass


@dataclass
class Blob:
    """A file: its bytes, and whether it lies in large storage."""

    content: bytes
    large: bool

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @property
    def oid(self) -> str:
        """git's hash: of the content, or of the pointer that stands for it."""
        content = f"version\noid sha256:{self.sha256}\n".encode() if self.large else self.content
        return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()

    @property
    def etag(self) -> str:
        return self.sha256 if self.large else self.oid

    def info(self, path: str) -> dict:
        """What paths-info says of it."""
        value = {"type": "file", "path": path, "size": len(self.content), "oid": self.oid}
        if self.large:
            value |= {
                "lfs": {"oid": self.sha256, "size": len(self.content), "pointerSize": 134},
                "xetHash": self.sha256,
            }
        return value


@dataclass
class Request:
    """One request as it came, and the status of the answer."""

    method: str
    path: str
    headers: dict[str, str]
    bytes_asked: bool  # for content, not about files
    status: int = 0


@dataclass
class Hub:
    """What the hub has, what goes wrong with it, and what it was asked."""

    commits: dict[tuple[str, str, str], dict[str, Blob]] = field(default_factory=dict)  # of kind, repository, commit
    branches: dict[tuple[str, str, str], str] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    # Faults
    statuses: list[int] = field(default_factory=list)  # of the next answers, each once
    content_statuses: list[int] = field(default_factory=list)  # the same for content alone
    network_statuses: list[int] = field(default_factory=list)  # the same for the content network
    down: int = 0  # status of all answers
    retry_after: str = ""
    cuts: list[int] = field(default_factory=list)  # bytes after which the next answers with content break off
    stall: int | None = None  # bytes after which content stops coming, until `go_on`
    silent: str = ""  # the method of requests that get no answer, until `go_on`
    go_on: threading.Event = field(default_factory=threading.Event)
    wrong_bytes: bool = False  # content with one byte changed
    longer: bytes = b""  # what comes after the content
    shorter: int = 0  # how many of the content's last bytes are lost
    ignores_range: bool = False
    gone: set[str] = field(default_factory=set)  # files that are stated, and not served
    token: str | None = None  # who has it may read
    gated: bool = False
    no_hub: str | None = None  # what is answered instead, with 200
    url: str = ""
    content_url: str = ""

    def __post_init__(self) -> None:
        self._servers = [Server(("127.0.0.1", 0), self._handler()) for _ in range(2)]
        for server in self._servers:
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        self.url, self.content_url = (f"http://127.0.0.1:{server.server_address[1]}" for server in self._servers)

    def close(self) -> None:
        self.go_on.set()
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def commit(self, repo: str, files: dict[str, bytes], *, kind: str = "dataset", branch="main", large=True) -> str:
        """Put a commit on a branch; returns its hash."""
        blobs = {path: Blob(content, large) for path, content in files.items()}
        names = json.dumps([repo, branch, [[path, blob.oid] for path, blob in sorted(blobs.items())]])
        commit = hashlib.sha1(names.encode()).hexdigest()
        self.commits[kind, repo, commit] = blobs
        self.branches[kind, repo, branch] = commit
        return commit

    def asked(self, *, content: bool) -> list[Request]:
        """Requests for content, or those about files."""
        return [request for request in self.requests if request.bytes_asked == content]

    def ranges(self) -> list[str | None]:
        """The Range of each answer with content."""
        return [r.headers.get("range") for r in self.asked(content=True) if r.status in (200, 206)]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                self.answer()

            def do_GET(self) -> None:
                self.answer()

            def do_POST(self) -> None:
                self.answer()

            def log_message(self, *_) -> None:
                pass

            def answer(self) -> None:
                headers = {key.lower(): value for key, value in self.headers.items()}
                self.body = self.rfile.read(int(headers.get("content-length", 0)))
                path, _, self.query = self.path.partition("?")
                if path == "/api/agent-harnesses":  # the library's own errand
                    return self.send(404, b"", {})
                path = urllib.parse.unquote(path) if "/resolve/" in path else path
                is_content = bool(BLOB.fullmatch(path) or RESOLVE.fullmatch(path))
                self.request_seen = Request(self.command, path, headers, is_content)
                hub.requests.append(self.request_seen)
                if hub.silent == self.command:
                    hub.go_on.wait(60)
                    self.close_connection = True
                    return None
                if hub.down:
                    return self.say(hub.down)
                if hub.statuses:
                    return self.say(hub.statuses.pop(0))
                if is_content and hub.content_statuses:
                    return self.say(hub.content_statuses.pop(0))
                if BLOB.fullmatch(path) and hub.network_statuses:
                    return self.say(hub.network_statuses.pop(0))
                if hub.no_hub is not None:
                    return self.send(200, hub.no_hub.encode(), {"Content-Type": "text/html"})
                if match := BLOB.fullmatch(path):
                    return self.blob(match[1])
                if hub.token and headers.get("authorization") != f"Bearer {hub.token}":
                    return self.say(401, "Invalid username or password.")
                if match := API.fullmatch(path):
                    return self.api(*match.groups())
                if match := RESOLVE.fullmatch(path):
                    return self.resolve("dataset" if match[1] else "model", *match.groups()[1:])
                self.say(404)

            def send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
                if hasattr(self, "request_seen"):
                    self.request_seen.status = status
                self.send_response(status)
                for key, value in {"Content-Length": str(len(content)), **headers}.items():
                    self.send_header(key, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

            def say(self, status: int, error: str = "of the test", code: str = "") -> None:
                headers = {"Content-Type": "application/json", "X-Error-Message": error}
                headers |= {"X-Error-Code": code} if code else {}
                headers |= {"Retry-After": hub.retry_after} if hub.retry_after else {}
                self.send(status, json.dumps({"error": error}).encode(), headers)

            def found(self, kind: str, repo: str, revision: str) -> tuple[str, dict[str, Blob]] | None:
                if not any(key[:2] == (kind, repo) for key in hub.branches):
                    self.say(401, "Invalid username or password.")  # so that nobody learns which names are private
                    return None
                commit = hub.branches.get((kind, repo, revision), revision)
                if (kind, repo, commit) not in hub.commits:
                    self.say(404, f"Invalid rev id: {revision}", "RevisionNotFound")
                    return None
                return commit, hub.commits[kind, repo, commit]

            def api(self, kinds: str, repo: str, what: str, revision: str) -> None:
                if (found := self.found(kinds.removesuffix("s"), repo, urllib.parse.unquote(revision))) is None:
                    return None
                commit, blobs = found
                if what == "revision":
                    value = {"id": repo, "sha": commit, "siblings": [{"rfilename": path} for path in blobs], "tags": []}
                else:
                    paths = urllib.parse.parse_qs(self.body.decode())["paths"]
                    value = [blobs[path].info(path) for path in paths if path in blobs]
                self.send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

            def resolve(self, kind: str, repo: str, revision: str, path: str) -> None:
                if (found := self.found(kind, repo, revision)) is None:
                    return None
                commit, blobs = found
                if hub.gated:
                    return self.say(403, f"Access to {kind} {repo} is restricted.", "GatedRepo")
                if path not in blobs or path in hub.gone:
                    return self.say(404, "Entry not found", "EntryNotFound")
                blob = blobs[path]
                headers = {"X-Repo-Commit": commit, "ETag": f'"{blob.etag}"'}
                if not blob.large:
                    return self.content(blob.content, headers)
                headers |= {"X-Linked-Etag": f'"{blob.etag}"', "X-Linked-Size": str(len(blob.content))}
                headers["Location"] = f"{hub.content_url}/blob/{blob.sha256}?signature=secret"
                self.send(302, b"Found", headers)

            def blob(self, sha256: str) -> None:
                blobs = (blob for blobs in hub.commits.values() for blob in blobs.values())
                content = next(blob.content for blob in blobs if blob.sha256 == sha256)
                self.content(content, {"ETag": '"of the content network"'})

            def content(self, content: bytes, headers: dict[str, str]) -> None:
                if hub.wrong_bytes:
                    content = content[:-1] + bytes([content[-1] ^ 1])
                content = content[: len(content) - hub.shorter] + hub.longer
                status, start, whole = 200, 0, len(content)
                asked = re.fullmatch(r"bytes=(\d+)-", self.request_seen.headers.get("range", ""))
                if asked and not hub.ignores_range:
                    status, start = 206, int(asked[1])
                    if start >= whole:
                        return self.send(416, b"", {"Content-Range": f"bytes */{whole}"})
                    headers |= {"Content-Range": f"bytes {start}-{whole - 1}/{whole}"}
                body = content[start:]
                if self.command == "HEAD" or not (hub.cuts or hub.stall is not None):
                    return self.send(status, body, {**headers, "Accept-Ranges": "bytes"})
                first = body[: hub.cuts.pop(0) if hub.cuts else hub.stall]
                stalled = hub.stall is not None
                self.send(status, first, {**headers, "Content-Length": str(len(body))})
                self.wfile.flush()
                if stalled:
                    hub.go_on.wait(60)
                self.close_connection = True

        return Handler


@functools.cache
def content(seed: int) -> bytes:
    return random.Random(seed).randbytes(SIZE + seed)


def files(first: int = 0) -> dict[str, bytes]:
    """Two files, of other content for another `first`."""
    return {PATTERN.format(shard=number): content(first + number) for number in range(2)}


def use(monkeypatch, url):
    """Make it the library's endpoint, as HF_ENDPOINT does when the library is imported."""
    monkeypatch.setattr(constants, "ENDPOINT", url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", url + "/{repo_id}/resolve/{revision}/{filename}")
