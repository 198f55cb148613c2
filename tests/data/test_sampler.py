"""The windows of a step: a pure function, uniform as promised, and always within one document."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from scipy.stats import chi2_contingency, chisquare

from tokencodes.data import sampler, store
from tokencodes.data.manifest import SPLITS, ShardEntry, StoreManifest
from tokencodes.data.sampler import Sampler, below, blocks
from tokencodes.errors import UserError

V = 60_000


def make_store(folder: Path, lengths: list[list[int]], split="train") -> store.Store:
    """Shards of documents of these lengths; token k of the corpus is k modulo V, so a window tells its place."""
    first, entries = 0, []
    for number, each in enumerate(lengths):
        name = f"s{number}"
        (folder / name).mkdir(parents=True)
        tokens = np.arange(first, first + sum(each)) % V
        first += sum(each)
        (folder / "raw").write_bytes(tokens.astype("<u2").tobytes())
        for at in SPLITS:
            own = each if at == split else []
            header = {"format_version": 1, "vocab_size": V, "documents": len(own), "tokens": sum(own), "max_id": V - 1}
            ids = [f"{name}-{i}" for i in range(len(own))]
            store.write_split(folder / name / f"{at}.arrow", ids, [0] * len(own), own, folder / "raw", header)
        entries.append(ShardEntry.model_construct(name=name))
    return store.Store(folder, StoreManifest.model_construct(shards=entries))


LENGTHS = [[5, 9, 6], [], [7], [5, 5, 5, 12, 8]]  # a shard may have no document
CONTEXT = 4  # a window is 5 tokens
GOLDEN = [(2, 0, 0), (0, 1, 0), (0, 2, 1), (0, 1, 2), (0, 2, 0)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("corpus"), LENGTHS)


@pytest.fixture(scope="module")
def windows_of(corpus):
    return Sampler(corpus, "train", CONTEXT, 0).windows


# ------------------------------------------------------------- pure function


def test_philox_gives_the_published_numbers():
    """The known answer of Random123 for Philox-4x64-10, counter and key zero."""
    (block,) = blocks(0, 0, 0, np.array([0]))
    assert [f"{word:016x}" for word in block.tolist()] == [
        *("16554d9eca36314c", "db20fe9d672d0fdc", "d7e772cee186176b", "7e68b68aec7ba23b")
    ]


@hypothesis_settings(deadline=None)
@given(st.integers(0, 2**64 - 1), st.integers(0, 1), st.integers(0, 2**63), st.integers(0, 2**40), st.integers(1, 20))
def test_a_block_depends_on_its_own_index_alone(seed, stream, step, first, n):
    """Against NumPy's generator set to each counter on its own."""
    found = blocks(seed, stream, step, np.arange(first, first + n))
    for i in range(n):
        # Philox counts up before it makes a block: start one below, with the borrow that this means
        below_it = ((step << 64) + first + i - 1) % 2**256
        counter = np.array([(below_it >> (64 * word)) % 2**64 for word in range(4)], dtype=np.uint64)
        key = np.array([seed, stream], dtype=np.uint64)
        assert found[i].tolist() == np.random.Philox(counter=counter, key=key).random_raw(4).tolist()


def test_the_same_windows_again_and_from_another_sampler(corpus, windows_of):
    first = windows_of(7, range(100))
    windows_of(8, range(3))
    assert first.dtype == np.int64 and first.shape == (100, CONTEXT + 1)
    assert (windows_of(7, range(100)) == first).all()
    assert (Sampler(corpus, "train", CONTEXT, 0).windows(7, np.arange(100)) == first).all()


def test_numbers_that_must_not_change(corpus):
    """A store made today must give the same run tomorrow: the places of a few windows, written down once."""
    shard, document, start = Sampler(corpus, "train", CONTEXT, 1234).places(56, range(5))
    assert list(zip(shard.tolist(), document.tolist(), start.tolist(), strict=True)) == GOLDEN


@hypothesis_settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_partition_of_the_batch_gives_the_same_windows(windows_of, data):
    """Ranks, micro-batches and accumulation: any way of dealing the indices out, in any order."""
    ranks, micro, accumulation = (data.draw(st.integers(1, 4)) for _ in range(3))
    n, step = ranks * micro * accumulation, data.draw(st.integers(0, 2**40))
    whole = windows_of(step, range(n))
    for rank in range(ranks):
        for turn in range(accumulation):
            first = (turn * ranks + rank) * micro
            assert (windows_of(step, range(first, first + micro)) == whole[first : first + micro]).all()
    order = np.array(data.draw(st.permutations(range(n))))
    assert (windows_of(step, order) == whole[order]).all()
    stride = data.draw(st.integers(1, 3))
    assert (windows_of(step, range(n)[::stride]) == whole[::stride]).all()
    cut = data.draw(st.integers(0, n))
    assert (np.concatenate([windows_of(step, order[:cut]), windows_of(step, order[cut:])]) == whole[order]).all()


def test_no_indices(windows_of, corpus):
    assert windows_of(3, range(0)).shape == (0, CONTEXT + 1)
    assert windows_of(3, np.array([], dtype=np.int64)).dtype == np.int64
    assert all(len(each) == 0 for each in Sampler(corpus, "train", CONTEXT, 0).places(3, range(0)))


def test_steps_seeds_and_splits_differ(tmp_path, corpus):
    long = make_store(tmp_path / "long", [[1000] * 50])
    held_out = make_store(tmp_path / "held-out", [[1000] * 50], split="validation")
    batches = [Sampler(long, "train", 4, seed).windows(step, range(64)) for seed in (0, 1) for step in (0, 1, 2**40)]
    batches.append(Sampler(held_out, "validation", 4, 0).windows(0, range(64)))  # the same tokens, another stream
    for i, one in enumerate(batches):
        assert len(np.unique(one[:, 0])) > 60
        for other in batches[:i]:
            assert (one[:, 0] == other[:, 0]).sum() <= 2


@pytest.mark.parametrize("step", [0, 1, 382_500, 2**31, 2**53 + 1, 2**63])
def test_large_steps_and_indices(windows_of, step):
    found = windows_of(step, np.array([0, 2**20, 2**20 + 1]))
    assert found.shape == (3, 5) and (windows_of(step, [2**20 + 1]) == found[2:]).all()


# --------------------------------------------------------------- distribution


def every_place():
    """(shard, document, start) of each window there is, with its exact probability."""
    n_documents = sum(map(len, LENGTHS))
    places = {}
    for shard, lengths in enumerate(length for length in LENGTHS if length):
        for document, length in enumerate(lengths):
            for start in range(length - CONTEXT):
                places[shard, document, start] = 1 / n_documents / (length - CONTEXT)
    return places


@pytest.mark.parametrize(("steps", "batch"), [(1, 200_000), (4_000, 50)])
def test_chi_square_against_the_exact_distribution(corpus, steps, batch):
    """Over the indices of one step, and over steps."""
    expected, found = every_place(), {}
    drawn = Sampler(corpus, "train", CONTEXT, 5)
    for step in range(steps):
        for place in zip(*(each.tolist() for each in drawn.places(step, range(batch))), strict=True):
            found[place] = found.get(place, 0) + 1
    assert found.keys() <= expected.keys() and abs(sum(expected.values()) - 1) < 1e-12
    counts = [found.get(place, 0) for place in expected]
    assert chisquare(counts, np.array(list(expected.values())) * steps * batch).pvalue > 1e-3


def test_neighbours_are_independent(corpus):
    """The document of one index says nothing of that of the next, nor of that of the next step."""
    drawn = Sampler(corpus, "train", CONTEXT, 6)
    rows = []
    for step in range(300):
        shard, document, _ = drawn.places(step, range(100))
        rows.append(shard * 10 + document)
    names, codes = np.unique(rows, return_inverse=True)
    codes = codes.reshape(300, 100)
    for one, other in ((codes[:, :-1], codes[:, 1:]), (codes[:-1], codes[1:])):
        table = np.zeros((len(names), len(names)))
        np.add.at(table, (one.ravel(), other.ravel()), 1)
        assert chi2_contingency(table).pvalue > 1e-3


@given(st.integers(0, 2**64 - 1), st.integers(1, 2**48))
def test_a_word_gives_a_number_below_n(word, n):
    found = int(below(np.array([word], dtype=np.uint64), n)[0])
    assert 0 <= found < n and abs(found - word * n // 2**64) <= 1 + n / 2**50
    assert below(np.array([2**64 - 1], dtype=np.uint64), n)[0] == n - 1 and below(np.array([0], np.uint64), n)[0] == 0


# ------------------------------------------------------------------ documents


@hypothesis_settings(max_examples=30, deadline=None)
@given(
    st.lists(st.lists(st.integers(6, 40), max_size=8), min_size=1, max_size=4).filter(any),
    st.integers(1, 5),
    st.integers(0, 2**63),
)
def test_each_window_is_a_slice_of_one_document(tmp_path_factory, lengths, context, step):
    corpus = make_store(tmp_path_factory.mktemp("slices"), lengths)
    documents, first = [], 0
    for length in (n for shard in lengths for n in shard):
        documents.append(range(first, first + length))
        first += length
    for window in Sampler(corpus, "train", context, 0).windows(step, range(200)).tolist():
        (document,) = [each for each in documents if window[0] in each]
        assert len(window) == context + 1 and window == list(range(window[0], window[-1] + 1))
        assert window[-1] in document


def test_first_and_last_window_of_a_document_are_drawn(windows_of):
    found = {tuple(window) for step in range(200) for window in windows_of(step, range(50)).tolist()}
    assert len(found) == len(every_place())
    assert (0, 1, 2, 3, 4) in found and (9, 10, 11, 12, 13) in found  # ends of the document of 9 tokens: 5 to 13


def test_a_document_of_just_one_window(tmp_path):
    drawn = Sampler(make_store(tmp_path, [[5]]), "train", 4, 0)
    assert drawn.windows(9, range(3)).tolist() == [[0, 1, 2, 3, 4]] * 3 and drawn.n_documents == 1


def test_a_real_store(tiny):
    opened = store.Store.open(tiny.store)
    for split in SPLITS:
        drawn = Sampler(opened, split, 16, 0)
        assert drawn.n_documents == opened.manifest.split(split).documents
        documents = [shard.document(i) for shard in opened.split(split) for i in range(len(shard.ids))]
        whole = [np.lib.stride_tricks.sliding_window_view(document, 17) for document in documents]
        known = {tuple(window) for each in whole for window in each.tolist()}
        assert {tuple(window) for window in drawn.windows(0, range(300)).tolist()} <= known


# ------------------------------------------------------------------- refusals


def test_a_split_without_documents(corpus):
    with pytest.raises(UserError, match="the validation split has no document"):
        Sampler(corpus, "validation", CONTEXT, 0)


def test_a_context_that_is_longer_than_a_document(corpus):
    with pytest.raises(UserError, match=r"s0/train\.arrow: a document is shorter than context_length \+ 1 = 6 tokens"):
        Sampler(corpus, "train", 5, 0)


@pytest.mark.parametrize("seed", [2**64, -1])
def test_a_seed_that_would_meet_another_stream(corpus, seed):
    with pytest.raises(UserError, match="seeds from 0 to 2\\^64 - 1"):
        Sampler(corpus, "train", CONTEXT, seed)
    assert len(Sampler(corpus, "train", CONTEXT, 2**64 - 1).windows(0, range(2))) == 2


def test_the_streams_are_the_places_of_the_splits():
    """Part of the numbers' definition: another order of the splits would change every run."""
    assert SPLITS == ("train", "validation") and sampler.WORDS == 4
