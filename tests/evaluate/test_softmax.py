"""The softmax by parts of the vocabulary."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from tokencodes.evaluate.softmax import log_probabilities


@given(st.data())
def test_parts_of_the_vocabulary_give_the_whole_softmax(data: st.DataObject) -> None:
    """Against torch's log_softmax and argmax: ties within a part and across parts, and tokens that are ruled out."""
    n, vocab_size = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 30))
    width = data.draw(st.integers(1, 30))
    values = st.sampled_from([-torch.inf, -80.0, -2.0, 0.0, 0.5, 3.0, 60.0])
    flat = data.draw(st.lists(values, min_size=n * vocab_size, max_size=n * vocab_size))
    logits = torch.tensor(flat).view(n, vocab_size)
    logits[:, data.draw(st.integers(0, vocab_size - 1))] = data.draw(st.sampled_from([-5.0, 0.0, 60.0]))
    rows = np.array(data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=12)))
    targets = np.array([data.draw(st.integers(0, vocab_size - 1)) for _ in rows])
    parts = ((first, logits[:, first : first + width].clone()) for first in range(0, vocab_size, width))
    found, best = log_probabilities(parts, rows, targets)
    expected = torch.log_softmax(logits.double(), dim=-1)[rows, targets]
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=1e-5)
    assert best.tolist() == (logits.argmax(dim=-1)[rows] == torch.from_numpy(targets)).tolist()
