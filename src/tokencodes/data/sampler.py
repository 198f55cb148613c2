"""Which tokens a step sees: a pure function of (seed, split, step, index in the global batch). No cursor, no epoch.

So a resumed run, another number of ranks, another micro-batch or another accumulation get the same windows.

The rule. A shard is drawn in proportion to the documents that it keeps and a document uniformly within the shard, which
together is uniform over all documents of the split; the window's start is uniform over the places in the document where
context_length + 1 tokens fit (paper: documents uniform within a shard, starts uniform within a document; the rule for
shards is ours).

The numbers. Philox-4x64 (Salmon et al., 2011) with the key (seed, split) and the counter (index, step, 0, 0) gives each
window a block of four 64-bit words of its own. Of word u, floor((u >> 11) * 2^-53 * n) is uniform on 0..n-1 up to a
relative error of n / 2^53. Word 0 draws the document, word 1 the start.
"""

import numpy as np

from tokencodes.data.manifest import SPLITS
from tokencodes.data.store import Store
from tokencodes.errors import UserError

WORDS = 4  # of a Philox block


def blocks(seed: int, stream: int, step: int, indices: np.ndarray) -> np.ndarray:
    """The block of each index, uint64 (n, 4)."""
    if len(indices) == 0:
        return np.empty((0, WORDS), dtype=np.uint64)
    first, last = int(indices.min()), int(indices.max())
    # NumPy's Philox counts up before it makes a block, so it starts one below
    counter = ((step << 64) + first - 1) % 2**256
    generator = np.random.Philox(key=(stream << 64) + seed, counter=counter)
    return generator.random_raw((last - first + 1) * WORDS).reshape(-1, WORDS)[indices - first]


def below(words: np.ndarray, n: np.ndarray | int) -> np.ndarray:
    """Uniform integers 0..n-1 from 64-bit words, int64."""
    return ((words >> np.uint64(11)) * 2.0**-53 * n).astype(np.int64)


class Sampler:
    """Windows of one split of a store."""

    def __init__(self, store: Store, split: str, context_length: int, seed: int):
        """Raises UserError if the split has no document, if one is shorter than a window, or for a seed of 2^64 on."""
        if not 0 <= seed < 2**64:
            raise UserError(f"seed {seed}: the sampler's counter takes seeds from 0 to 2^64 - 1; set a smaller one")
        self.seed, self.stream, self.length = seed, SPLITS.index(split), context_length + 1
        self.shards = [shard for shard in store.split(split) if len(shard.offsets) > 1]
        if not self.shards:
            raise UserError(f"{store.path}: the {split} split has no document; change data.split or use more data")
        self.tokens = [shard.tokens for shard in self.shards]
        self.offsets = [shard.offsets for shard in self.shards]
        self.first_document = np.cumsum([0] + [len(offsets) - 1 for offsets in self.offsets])
        for shard in self.shards:
            if shard.shortest < self.length:
                raise UserError(
                    f"{shard.path}: a document is shorter than context_length + 1 = {self.length} tokens; prepare the "
                    f"corpus with data.min_tokens of {self.length} or more"
                )

    @property
    def n_documents(self) -> int:
        """Documents of the split."""
        return int(self.first_document[-1])

    def places(self, step: int, indices: np.ndarray | range) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Shard, document within it and start within that, int64 (n,) each."""
        words = blocks(self.seed, self.stream, step, np.asarray(indices, dtype=np.int64))
        document = below(words[:, 0], self.n_documents)
        shard = np.searchsorted(self.first_document, document, side="right") - 1
        document = document - self.first_document[shard]
        bounds = [self.offsets[of][at : at + 2] for of, at in zip(shard.tolist(), document.tolist(), strict=True)]
        lengths = np.diff(np.array(bounds, dtype=np.int64).reshape(-1, 2)).ravel()
        return shard, document, below(words[:, 1], lengths - self.length + 1)

    def windows(self, step: int, indices: np.ndarray | range) -> np.ndarray:
        """Token ids int64 (n, context_length + 1) of these places in the global batch of `step`."""
        out = np.empty((len(indices), self.length), dtype=np.int64)
        for row, shard, document, start in zip(
            out, *(each.tolist() for each in self.places(step, indices)), strict=True
        ):
            at = self.offsets[shard].item(document) + start
            row[:] = self.tokens[shard][at : at + self.length]
        return out
