"""The code book as an artefact: made once from an interface's spec, hashed, checked, and read by every later stage.

`tokencodes codes` writes NAME.npy, the V x K array, and NAME.json beside it, a record of what it is. Row t is the code
of token t; with a permutation seed, the code that token permutation[t] would have had.
"""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from tokencodes.errors import UserError
from tokencodes.files import atomic_path, sha256_file
from tokencodes.interfaces.spec import CodeInterface, Interface, is_fixed
from tokencodes.interfaces.vocabulary import Vocabulary
from tokencodes.records import Record

PURE = "draw from a seeded stream of the kind's own, and use neither a global generator nor Python's hash()"
RECIPE = {"codebook", "permutation_seed", "shared"}  # the keys of an interface that decide its code book

# Runs in a new process with another seed of Python's hash(): the code book must be the same there.
OTHER_PROCESS = """
import json, sys
from tokencodes.interfaces import codes
from tokencodes.interfaces.spec import CodeInterface
from tokencodes.interfaces.vocabulary import Vocabulary
interface, size, spelling = json.load(sys.stdin)
spelling = None if spelling is None else tuple(map(bytes.fromhex, spelling))
interface = CodeInterface.model_validate(interface)
print(codes.sha256(codes.permuted(interface, interface.codebook.build(Vocabulary(size, spelling)))))
"""


class CodesRecord(Record):
    """What a code book is. Written by `tokencodes codes`, beside the array."""

    kind: ClassVar[str] = "the record of a code book"
    made_by: ClassVar[str] = "tokencodes codes"

    interface: str = Field(description="name of the interface in the config")
    recipe: dict[str, Any] = Field(description="the keys of the interface that decide the code book")
    sha256: str = Field(description="of the values: type, shape and bytes")
    file_sha256: str = Field(description="of the .npy file")
    tokenizer_sha256: str | None = Field(description="of tokenizer.json; null if the codes do not depend on spelling")
    dtype: str = Field(description="uint8 for bits, float32 for continuous codes")
    vocab_size: int = Field(description="V, rows")
    width: int = Field(description="K, coordinates")
    distinct: int = Field(description="number of distinct codes")
    rank: int = Field(description="rank of the V x K matrix over the reals")
    least_weight: int | None = Field(description="smallest number of ones in a code; null for continuous codes")
    mean_weight: float | None = Field(description="mean number of ones; null for continuous codes")
    greatest_weight: int | None = Field(description="largest number of ones; null for continuous codes")


def sha256(codes: np.ndarray) -> str:
    """Hex SHA-256 of type, shape and little-endian bytes: equal for equal values, whatever file they are in."""
    hasher = hashlib.sha256(f"{codes.dtype.name} {'x'.join(map(str, codes.shape))}\n".encode())
    hasher.update(np.ascontiguousarray(codes).astype(codes.dtype.newbyteorder("<"), copy=False).tobytes())
    return hasher.hexdigest()


def permutation(vocab_size: int, seed: int) -> np.ndarray:
    """A seeded random order of the ids, int64 (V,): ids sorted by BLAKE2b-64 of (seed, id) (a control of ours)."""

    def key(token: int) -> bytes:
        return hashlib.blake2b(f"tokencodes permutation seed={seed} id={token}".encode("ascii"), digest_size=8).digest()

    return np.array(sorted(range(vocab_size), key=lambda token: (key(token), token)), dtype=np.int64)


def build(interface: CodeInterface, vocabulary: Vocabulary) -> np.ndarray:
    """The code book (V, K): uint8 for binary codes, float32 for continuous ones.

    Raises UserError if the kind's two ways of computing it (`Codebook.build`, `Codebook.again`) disagree, if two builds
    differ, or if two tokens have one code and the interface does not say `shared: true`.
    """
    codes = permuted(interface, interface.codebook.build(vocabulary))
    shape = (vocabulary.size, interface.codebook.coordinates(vocabulary.size))
    dtype = np.uint8 if interface.codebook.is_binary else np.float32
    if codes.shape != shape or codes.dtype != dtype:
        raise UserError(
            f"codebook: {codes.dtype} {codes.shape[0]} x {codes.shape[-1]} values, expected {np.dtype(dtype)} "
            f"{shape[0]} x {shape[1]}; make the keys fit vocab_size, or mend the code book"
        )
    if interface.codebook.is_binary and codes.max(initial=0) > 1:
        raise UserError("codebook: a binary code has a coordinate that is neither 0 nor 1; mend the code book")
    if not np.isfinite(codes).all():
        raise UserError("codebook: a coordinate is NaN or infinite; mend the code book")
    n_distinct = distinct(codes)
    if n_distinct < vocabulary.size and not interface.shared:
        raise UserError(
            f"codebook: {vocabulary.size} tokens have only {n_distinct} distinct codes, so the model cannot tell them "
            "all apart; use a wider code or another seed, or say shared: true"
        )
    if problem := differences(codes, permuted(interface, interface.codebook.build(vocabulary))):
        raise UserError(f"codebook: two builds differ: {problem}; {PURE}")
    if problem := differences(codes, again(interface, vocabulary)):
        raise UserError(f"codebook: `build` and `again` of the kind disagree: {problem}; mend the one that is wrong")
    return codes


def differences(codes: np.ndarray, other: np.ndarray) -> str | None:
    """How two code books differ, in one line; None if they have the same type, shape and values."""
    if codes.shape != other.shape or codes.dtype != other.dtype:
        return f"{codes.dtype} {codes.shape} and {other.dtype} {other.shape}"
    wrong = codes != other
    if not wrong.any():
        return None
    token, coordinate = np.unravel_index(wrong.argmax(), wrong.shape)
    return f"{wrong.sum()} of {codes.size} entries differ, the first at token {token}, coordinate {coordinate}"


def again(interface: CodeInterface, vocabulary: Vocabulary) -> np.ndarray:
    """The same values by the other way of the interface's kind (`Codebook.again`)."""
    return permuted(interface, interface.codebook.again(vocabulary))


def permuted(interface: CodeInterface, codes: np.ndarray) -> np.ndarray:
    """The rows of a code book in the order that the interface's `permutation_seed` gives."""
    if interface.permutation_seed is None:
        return codes
    return codes[permutation(len(codes), interface.permutation_seed)]


def distinct(codes: np.ndarray) -> int:
    """The number of distinct rows."""
    rows = np.ascontiguousarray(codes)
    return len(np.unique(rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1])))))


def rank(codes: np.ndarray) -> int:
    """Rank over the reals, from the K x K Gram matrix in float64."""
    values = codes.astype(np.float64)
    return int(np.linalg.matrix_rank(values.T @ values, hermitian=True))


def describe(
    name: str, interface: CodeInterface, codes: np.ndarray, file_sha256: str, tokenizer_sha256: str | None
) -> CodesRecord:
    """The record of a code book."""
    weights = codes.sum(axis=1, dtype=np.int64) if interface.codebook.is_binary else None
    return CodesRecord(
        interface=name,
        recipe=recipe(interface),
        sha256=sha256(codes),
        file_sha256=file_sha256,
        tokenizer_sha256=tokenizer_sha256 if interface.codebook.spelled else None,
        dtype=codes.dtype.name,
        vocab_size=codes.shape[0],
        width=codes.shape[1],
        distinct=distinct(codes),
        rank=rank(codes),
        least_weight=None if weights is None else int(weights.min()),
        mean_weight=None if weights is None else float(weights.mean()),
        greatest_weight=None if weights is None else int(weights.max()),
    )


def recipe(interface: CodeInterface) -> dict[str, Any]:
    """What decides a code book, as plain values."""
    return interface.model_dump(mode="json", include=RECIPE)


def write(
    name: str, interface: Interface, vocabulary: Vocabulary, tokenizer_sha256: str | None, out: Path
) -> CodesRecord:
    """`tokencodes codes`: write the code book to `out` (.npy) and its record beside it, last.

    Raises UserError if the interface's input is trained, or if its code book is refused by `build` or
    is another one in another process.
    """
    if not is_fixed(interface):
        raise UserError(f"interface {name!r} has no fixed code book: its input is trained; name a fixed one")
    if out.suffix != ".npy":
        raise UserError(f"{out}: a code book is a .npy file; give --out that ending")
    try:
        codes = build(interface, vocabulary)
        if sha256(codes) != _in_another_process(interface, vocabulary):
            raise UserError(f"codebook: another process builds other values; {PURE}")
    except UserError as error:
        raise UserError(f"interfaces.{name}.{error}") from None
    with atomic_path(out) as temporary, open(temporary, "wb") as file:
        np.save(file, codes, allow_pickle=False)
    record = describe(name, interface, codes, sha256_file(out), tokenizer_sha256)
    record.write(record_path(out))
    return record


def _in_another_process(interface: CodeInterface, vocabulary: Vocabulary) -> str:
    """The hash of the code book as a new process builds it."""
    spelling = None if vocabulary.token_bytes is None else [each.hex() for each in vocabulary.token_bytes]
    request = json.dumps([interface.model_dump(mode="json"), vocabulary.size, spelling])
    own = os.environ.get("PYTHONHASHSEED")
    environment = {**os.environ, "PYTHONHASHSEED": "1" if own != "1" else "2"}
    command = [sys.executable, "-c", OTHER_PROCESS]
    done = subprocess.run(command, input=request, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()


def record_path(codes: Path) -> Path:
    """The record of a code book's file."""
    return codes.with_suffix(".json")


def load(path: Path, interface: CodeInterface, vocab_size: int) -> np.ndarray:
    """The code book in a file that `tokencodes codes` wrote, compared with its record and the interface.

    Raises UserError if the file is not the one that its record describes, or was made for another interface.
    """
    record = CodesRecord.read(record_path(path))
    if record.recipe != recipe(interface) or record.vocab_size != vocab_size:
        raise UserError(f"{path}: was made for another code book or vocab_size; run `tokencodes codes` again")
    try:
        codes = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"{path}: cannot be read as an array ({error}); run `tokencodes codes` again") from None
    if not isinstance(codes, np.ndarray) or sha256(codes) != record.sha256:
        raise UserError(f"{path}: is not the code book that its record describes; run `tokencodes codes` again")
    return codes
