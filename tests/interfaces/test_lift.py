"""The lifts: their definition, ranks and norms."""

import numpy as np
import pytest

from making import code
from tokencodes.interfaces import codes, lift
from tokencodes.interfaces.vocabulary import Vocabulary


@pytest.mark.parametrize("d_model", [64, 96, 130])
def test_ranks_of_the_lifts(d_model):
    built = codes.build(code("binary"), Vocabulary(512))  # K = 9
    ranks = {
        kind: np.linalg.matrix_rank(lift.lift(built, kind, d_model, 0)) for kind in ("tile", "orthogonal", "hadamard")
    }
    assert ranks == {"tile": 9, "orthogonal": 9, "hadamard": d_model}


def test_orthogonal_columns_have_the_norm_of_tiled_ones():
    r = lift.orthogonal_matrix(16, 2048, 3).astype(np.float64)
    np.testing.assert_allclose(r.T @ r, 128 * np.eye(16), atol=1e-2)


def test_hadamard_starts_with_the_single_bits():
    built = codes.build(code("binary"), Vocabulary(64))
    assert (lift.lift(built, "hadamard", 32, 0)[:, :6] == 1 - 2 * built.astype(np.float32)).all()


def test_what_a_model_stores_for_a_lift():
    assert lift.matrix("tile", 9, 32, 0) is None
    assert np.array_equal(lift.matrix("orthogonal", 9, 32, 1), lift.orthogonal_matrix(9, 32, 1))
    assert lift.matrix("hadamard", 9, 32, 1).dtype == np.uint8 and lift.matrix("hadamard", 9, 32, 1).shape == (32, 9)
