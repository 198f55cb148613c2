"""The code book as an artefact: written once, described, and believed only as it was written."""

import json
import random

import numpy as np
import pytest

from making import code
from tokencodes.cli import main
from tokencodes.errors import UserError
from tokencodes.interfaces import codes
from tokencodes.interfaces.codebook import Codebook
from tokencodes.interfaces.spec import TableInterface
from tokencodes.interfaces.vocabulary import Vocabulary


def test_permutation_reorders_the_rows():
    plain, mixed = (codes.build(code("binary", permutation_seed=seed), Vocabulary(1000)) for seed in (None, 5))
    order = codes.permutation(1000, 5)
    assert sorted(order.tolist()) == list(range(1000)) and np.array_equal(mixed, plain[order])
    assert (plain != mixed).any() and (order != codes.permutation(1000, 6)).any()


@pytest.mark.parametrize(
    ("interface", "rank", "weights"),
    [
        (code("binary"), 9, (0, 256 * 9 / 512, 9)),
        (code("gf2"), 9, (0, 256 * 9 / 512, 9)),
        (code("gaussian", width=20), 20, (None, None, None)),
    ],
    ids=["binary", "gf2", "gaussian"],
)
def test_the_record_says_what_the_code_book_is(tmp_path, interface, rank, weights):
    out = tmp_path / "x.npy"
    record = codes.write("x", interface, Vocabulary(512), None, out)
    assert record == codes.CodesRecord.read(tmp_path / "x.json")
    built = np.load(out)
    assert (record.vocab_size, record.width, record.dtype) == (*built.shape, built.dtype.name)
    assert (record.distinct, record.rank) == (512, rank) and record.sha256 == codes.sha256(built)
    assert (record.least_weight, record.mean_weight, record.greatest_weight) == weights
    assert np.array_equal(codes.load(out, interface, 512), built)


def test_a_hash_is_of_values_type_and_shape():
    bits = np.array([[0, 1], [1, 0]], np.uint8)
    assert codes.sha256(bits) == codes.sha256(np.asfortranarray(bits))
    others = [bits.astype(np.float32), bits.reshape(1, 4), bits.reshape(4, 1), 1 - bits]
    assert len({codes.sha256(bits), *map(codes.sha256, others)}) == 5


@pytest.fixture
def written(tmp_path):
    out = tmp_path / "x.npy"
    codes.write("x", code("gf2"), Vocabulary(300), None, out)
    return out


def test_a_flipped_bit_is_found(written):
    content = bytearray(written.read_bytes())
    for place in (len(content) - 1, len(content) // 2, 3):
        changed = bytearray(content)
        changed[place] ^= 1
        written.write_bytes(changed)
        with pytest.raises(UserError, match="run `tokencodes codes` again") as caught:
            codes.load(written, code("gf2"), 300)
        assert "\n" not in str(caught.value) and str(written) in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY", b"x" * 200, b"\x80\x04N."])
def test_what_is_no_array_is_one_line(written, content):
    written.write_bytes(content)
    with pytest.raises(UserError, match=r"x\.npy: .*run `tokencodes codes` again"):
        codes.load(written, code("gf2"), 300)


@pytest.mark.parametrize(
    ("interface", "vocab_size"),
    [(code("gf2", seed=1), 300), (code("binary"), 300), (code("gf2", permutation_seed=1), 300), (code("gf2"), 299)],
)
def test_a_code_book_of_something_else_is_refused(written, interface, vocab_size):
    with pytest.raises(UserError, match="was made for another code book or vocab_size"):
        codes.load(written, interface, vocab_size)


def test_lift_and_scale_do_not_decide_a_code_book(written):
    assert codes.load(written, code("gf2", lift="hadamard", scale="matched"), 300).shape == (300, 9)


def test_an_edited_record_is_found(written):
    path = codes.record_path(written)
    path.write_text(json.dumps({**json.loads(path.read_text()), "sha256": "0" * 64}))
    with pytest.raises(UserError, match="record_sha256"):
        codes.load(written, code("gf2"), 300)


class Wrong(Codebook):
    """A kind with a fault."""

    kind: str = "wrong"
    values: object
    again_values: object = None
    flipped: list = []  # noqa: RUF012  entries that each build flips

    model_config = {**Codebook.model_config, "arbitrary_types_allowed": True}  # noqa: RUF012

    @property
    def is_binary(self):
        return True

    def coordinates(self, vocab_size):
        return 4

    def build(self, vocabulary):
        for place in self.flipped:
            self.values[place] ^= 1
        return self.values.copy()

    def again(self, vocabulary):
        return self.values if self.again_values is None else self.again_values


class Eight(Wrong):
    """The same with more coordinates than the ids need."""

    def coordinates(self, vocab_size):
        return 8


DISTINCT = np.array([[n >> j & 1 for j in range(4)] for n in range(16)], np.uint8)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (np.vstack([DISTINCT[:15], DISTINCT[:1]]), "16 tokens have only 15 distinct codes"),
        (np.zeros((16, 4), np.uint8), "16 tokens have only 1 distinct codes"),
        (DISTINCT[:8], "expected uint8 16 x 4"),
        (DISTINCT[:, :3], "expected uint8 16 x 4"),
        (DISTINCT.astype(np.float32), "expected uint8 16 x 4"),
        (2 * DISTINCT, "neither 0 nor 1"),
    ],
)
def test_a_faulty_code_book_is_refused_before_training(values, said):
    interface = code("binary").model_copy(update={"codebook": Wrong(values=values)})
    with pytest.raises(UserError, match=said):
        codes.build(interface, Vocabulary(16))


def changed(places) -> np.ndarray:
    values = np.hstack([DISTINCT, DISTINCT])
    for place in places:
        values[place] ^= 1
    return values


@pytest.mark.parametrize("seed", range(20))
def test_two_ways_that_disagree_and_builds_that_differ_are_refused(seed):
    """Entries drawn at random; the codes stay distinct, since their first half is."""
    draw = random.Random(seed)
    places = [(draw.randrange(16), draw.randrange(4, 8)) for _ in range(draw.randint(1, 5))]
    places = sorted(set(places))
    first = f"{len(places)} of 128 entries differ, the first at token {places[0][0]}, coordinate {places[0][1]}"
    for fault, said in (
        ({"values": changed([]), "again_values": changed(places)}, "`build` and `again` of the kind disagree"),
        ({"values": changed([]), "flipped": places}, "two builds differ"),
    ):
        interface = code("binary").model_copy(update={"codebook": Eight(**fault)})
        with pytest.raises(UserError) as caught:
            codes.build(interface, Vocabulary(16))
        assert f"{said}: {first}; " in str(caught.value) and "\n" not in str(caught.value)


def test_shared_codes_must_be_asked_for():
    values = np.vstack([DISTINCT[:15], DISTINCT[:1]])
    interface = code("binary", shared=True).model_copy(update={"codebook": Wrong(values=values)})
    assert codes.distinct(codes.build(interface, Vocabulary(16))) == 15


# ------------------------------------------------------------- the command


def test_the_command_writes_the_code_book(tmp_path, root):
    out = tmp_path / "codes.npy"
    quickstart = str(root / "config/quickstart.yaml")
    assert main(["codes", "--config", quickstart, "--interface", "binary12", "--out", str(out)]) == 0
    assert np.array_equal(np.load(out), codes.build(code("binary"), Vocabulary(4096)))
    assert codes.CodesRecord.read(tmp_path / "codes.json").interface == "binary12"


@pytest.mark.parametrize(("name", "said"), [("binary13", "did you mean 'binary12'"), ("learned", "no fixed code book")])
def test_the_command_refuses_what_has_no_code_book(tmp_path, root, one_line, name, said):
    out = tmp_path / "codes.npy"
    line = one_line("codes", "--config", root / "config/quickstart.yaml", "--interface", name, "--out", out)
    assert said in line and not out.exists()


def test_the_command_wants_an_npy(tmp_path, root, one_line):
    line = one_line(
        "codes", "--config", root / "config/quickstart.yaml", "--interface", "gf2", "--out", tmp_path / "codes.json"
    )
    assert ".npy" in line and not list(tmp_path.iterdir())


def test_the_code_book_of_a_table_is_refused(tmp_path):
    with pytest.raises(UserError, match="its input is trained"):
        codes.write("learned", TableInterface(kind="table"), Vocabulary(10), None, tmp_path / "x.npy")
