"""The contract of a code book's kind: one test over every kind in the union, whatever it is called."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokencodes.errors import UserError
from tokencodes.files import sha256_file
from tokencodes.interfaces import codes
from tokencodes.interfaces.codebook import Codebook
from tokencodes.interfaces.codebooks import KINDS, AnyCodebook
from tokencodes.interfaces.spec import CodeInterface
from tokencodes.interfaces.vocabulary import Vocabulary, bits_needed

FOLDER = Path(tempfile.mkdtemp())
EXAMPLES = [
    pytest.param(kind, keys, id=f"{kind}{n}")
    for kind, book in KINDS.items()
    for n, keys in enumerate(book.examples_in(FOLDER))
]
FIXED = [example for example in EXAMPLES if not KINDS[example.values[0]].trained]
N_TOKENS = 300  # the vocabulary that the examples are for
SPELLING = tuple(f"{'x' * (n % 7)}{n:x}".encode() for n in range(2, N_TOKENS + 2))
SPELLING_HEX = [each.hex() for each in SPELLING]
BUILD_ALL = """
import json, sys
from tokencodes.interfaces import codes
from tokencodes.interfaces.codebooks import KINDS
from tokencodes.interfaces.vocabulary import Vocabulary
books, spelling = json.load(sys.stdin)
vocabulary = Vocabulary(len(spelling), tuple(map(bytes.fromhex, spelling)))
for book in books:
    print(codes.sha256(KINDS[book["kind"]].model_validate(book).build(vocabulary)))
"""


def book_of(kind: str, keys: dict) -> Codebook:
    return KINDS[kind].model_validate({"kind": kind, **keys})


def vocabulary_of(size: int = N_TOKENS) -> Vocabulary:
    return Vocabulary(size, SPELLING[:size])


def test_the_union_and_the_folder_hold_the_same_kinds():
    union = get_args(get_args(AnyCodebook)[0])
    assert set(union) == set(KINDS.values()) and len(union) == len(KINDS)
    assert {"binary", "gf2", "linear", "gaussian", "learned", "file"} <= set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_examples_and_describes_its_keys(kind):
    book = KINDS[kind]
    assert book.examples_in(FOLDER) and book.__doc__
    for name, field in book.model_fields.items():
        assert name == "kind" or field.description, f"{kind}.{name}"


@pytest.mark.parametrize(("kind", "keys"), FIXED)
def test_a_code_book_has_its_shape_and_type_and_is_pure(kind, keys):
    book = book_of(kind, keys)
    built = book.build(vocabulary_of())
    assert built.shape == (N_TOKENS, book.coordinates(N_TOKENS))
    assert built.dtype == (np.uint8 if book.is_binary else np.float32)
    if book.is_binary:
        assert built.max() <= 1
    assert np.isfinite(built).all()
    np.random.seed(0)
    assert np.array_equal(built, book_of(kind, keys).build(vocabulary_of()))


def hashes(seed: str) -> list[str]:
    """The hash of every example's code book, as a new process builds it whose hash() has this seed."""
    request = json.dumps([[{"kind": kind, **keys} for kind, keys in (each.values for each in FIXED)], SPELLING_HEX])
    command, environment = [sys.executable, "-c", BUILD_ALL], {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run(command, input=request, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_every_process_builds_the_same_values():
    expected = [codes.sha256(book_of(*each.values).build(vocabulary_of())) for each in FIXED]
    for seed in ("1", "2"):
        differ = [each.id for each, ours, theirs in zip(FIXED, expected, hashes(seed), strict=True) if ours != theirs]
        assert not differ


@pytest.mark.parametrize(("kind", "keys"), FIXED)
def test_another_way_gives_the_same_values(kind, keys):
    book = book_of(kind, keys)
    built, again = book.build(vocabulary_of()), book.again(vocabulary_of())
    assert built.dtype == again.dtype and np.array_equal(built, again)


@pytest.mark.parametrize(("kind", "keys"), FIXED)
def test_the_other_way_is_the_kinds_own(kind, keys):
    """No kind may inherit or borrow its check: a wrong code would be compared with itself."""
    book = KINDS[kind]
    assert "again" in vars(book) and "build" in vars(book)
    broken = type("Broken", (book,), {"build": lambda self, vocabulary: np.zeros((1, 1), np.uint8)})
    again = broken.model_validate({"kind": kind, **keys}).again(vocabulary_of())
    assert np.array_equal(again, book_of(kind, keys).build(vocabulary_of()))


@pytest.mark.parametrize(("kind", "keys"), FIXED)
@pytest.mark.parametrize("permutation_seed", [None, 5])
def test_codes_are_distinct_or_refused(kind, keys, permutation_seed):
    interface = CodeInterface.model_validate(
        {"kind": "code", "codebook": {"kind": kind, **keys}, "permutation_seed": permutation_seed}
    )
    built = codes.build(interface, vocabulary_of())
    assert codes.distinct(built) == N_TOKENS == len(np.unique(built, axis=0))
    assert np.array_equal(built, codes.again(interface, vocabulary_of()))


@pytest.mark.parametrize(("kind", "keys"), [example for example in FIXED if KINDS[example.values[0]].structure])
def test_a_kind_with_a_structure_finds_a_changed_entry(kind, keys):
    book = book_of(kind, keys)
    built = book.build(vocabulary_of(256))
    assert book.examine(built)
    for token in (1, 2, 64):
        changed = built.copy()
        changed[token, 0] ^= 1
        with pytest.raises(ValueError, match=r"\w"):
            book.examine(changed)


@pytest.mark.parametrize("kind", [kind for kind, book in KINDS.items() if book.spelled])
def test_a_kind_that_sees_spelling_says_so_without_a_tokenizer(kind):
    with pytest.raises(UserError, match="--tokenizer"):
        book_of(kind, KINDS[kind].examples_in(FOLDER)[0]).build(Vocabulary(N_TOKENS))


@pytest.mark.parametrize("kind", [kind for kind, book in KINDS.items() if book.trained])
def test_a_trained_kind_has_no_code_book(kind):
    with pytest.raises(TypeError):
        book_of(kind, KINDS[kind].examples_in(FOLDER)[0]).build(vocabulary_of())


@pytest.mark.parametrize(("kind", "keys"), EXAMPLES)
def test_bounds_of_the_width(kind, keys):
    """The codes of a kind with bits are wide enough, or its problems say that they are not."""
    book = book_of(kind, keys)
    assert book.problems(N_TOKENS, shared=False) == []
    if book.is_binary:
        too_many = 2 ** (book.coordinates(N_TOKENS) + 1)
        fits = book.coordinates(too_many) >= bits_needed(too_many)
        assert fits or [key for key, _ in book.problems(too_many, shared=False)] == ["width"]
        assert book.problems(too_many, shared=True) == []


# ------------------------------------------------------- what single kinds are


@given(vocab_size=st.integers(2, 3000), extra=st.integers(0, 6))
@settings(max_examples=80, deadline=None)
def test_binary_is_the_little_endian_bits_of_every_id(vocab_size, extra):
    width = bits_needed(vocab_size) + extra
    built = book_of("binary", {"width": width}).build(Vocabulary(vocab_size))
    assert built.dtype == np.uint8 and built.shape == (vocab_size, width)
    for token, row in enumerate(built.tolist()):
        assert sum(bit * 2**j for j, bit in enumerate(row)) == token
        assert row == [token // 2**j % 2 for j in range(width)]


def test_the_papers_width():
    assert bits_needed(49_152) == 16
    assert book_of("binary", {}).build(Vocabulary(49_152)).shape == (49_152, 16)


@given(
    kind=st.sampled_from(["binary", "gf2", "linear"]),
    vocab_size=st.integers(2, 3000),
    seed=st.integers(0, 10**6),
    bias=st.booleans(),
)
@settings(max_examples=80, deadline=None)
def test_binary_codes_are_injective_and_equal_their_other_way(kind, vocab_size, seed, bias):
    keys = {"binary": {}, "gf2": {"seed": seed, "random_bias": bias}}.get(
        kind, {"seed": seed, "width": bits_needed(vocab_size) + 5}
    )
    book = book_of(kind, keys)
    built = book.build(Vocabulary(vocab_size))
    assert set(np.unique(built)) <= {0, 1} and codes.distinct(built) == vocab_size
    assert np.array_equal(built, book.again(Vocabulary(vocab_size)))


def test_gaussian_codes_are_standard_normal():
    built = book_of("gaussian", {"width": 16, "seed": 1}).build(Vocabulary(4096))
    assert built.dtype == np.float32 and abs(built.mean()) < 0.02 and abs(built.std() - 1) < 0.02


@pytest.mark.parametrize(
    ("values", "change", "said"),
    [
        (np.eye(9, dtype=np.uint8), {"sha256": "0" * 64}, "codebook.sha256: is not that of"),
        (np.eye(9, dtype=np.uint8), {"path": "nowhere.npy"}, "nowhere.npy: no such file"),
        (np.eye(9, dtype=np.uint8), {"values": "float32"}, "has values of type uint8"),
        (np.eye(9), {}, "has values of type float64"),
        (np.zeros((9, 2, 2), np.uint8), {}, "has 3 dimensions"),
        (np.array([{"a": 1}], dtype=object), {}, "not an array in .npy format"),
        (b"no array", {}, "not an array in .npy format"),
    ],
)
def test_a_file_that_is_no_code_book_is_one_line(tmp_path, values, change, said):
    path = tmp_path / "codes.npy"
    if isinstance(values, bytes):
        path.write_bytes(values)
    else:
        np.save(path, values, allow_pickle=values.dtype == object)
    keys = {"path": str(path), "sha256": sha256_file(path), "width": 9, "values": "bits", **change}
    with pytest.raises(UserError) as caught:
        book_of("file", keys).build(Vocabulary(9))
    assert said in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_file_is_read_whatever_its_order_of_values(tmp_path, order):
    values = np.array(np.random.default_rng(0).standard_normal((20, 7)), np.float32, order=order)
    np.save(tmp_path / "x.npy", values)
    keys = {"path": str(tmp_path / "x.npy"), "sha256": sha256_file(tmp_path / "x.npy"), "width": 7, "values": "float32"}
    book = book_of("file", keys)
    assert np.array_equal(book.build(Vocabulary(20)), values) and np.array_equal(book.again(Vocabulary(20)), values)
