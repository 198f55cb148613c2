"""Code books, lifts and their composition: properties over many random cases."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tokencodes.cli import main
from tokencodes.interfaces import codebook, gf2, lift, module
from tokencodes.interfaces.spec import CodeInterface
from tokencodes.interfaces.vocabulary import bits_needed

INIT_STD = 0.02


def code(kind: str, *, lift: str = "tile", scale: str = "unit", permutation_seed: int | None = None, **book):
    return CodeInterface.model_validate(
        {
            "kind": "code",
            "codebook": {"kind": kind, **book},
            "lift": lift,
            "scale": scale,
            "permutation_seed": permutation_seed,
        }
    )


vocab_sizes = st.integers(2, 3000)


@given(vocab_size=vocab_sizes, extra=st.integers(0, 6))
@settings(max_examples=80, deadline=None)
def test_binary_is_the_little_endian_bits_of_every_id(vocab_size, extra):
    width = math.ceil(math.log2(vocab_size)) + extra
    codes = codebook.build(code("binary", width=width), vocab_size)
    assert codes.dtype == np.uint8 and codes.shape == (vocab_size, width)
    for token, row in enumerate(codes.tolist()):
        assert sum(bit * 2**j for j, bit in enumerate(row)) == token
        assert row == [token // 2**j % 2 for j in range(width)]


@given(vocab_size=st.integers(2, 2**40))
def test_default_width_is_the_ceiling_of_the_binary_logarithm(vocab_size):
    width = bits_needed(vocab_size)
    assert 2**width >= vocab_size and (width == 1 or 2 ** (width - 1) < vocab_size)


def test_the_papers_width():
    assert bits_needed(49_152) == 16
    assert codebook.build(code("binary"), 49_152).shape == (49_152, 16)


@given(
    kind=st.sampled_from(["binary", "gf2", "linear"]),
    vocab_size=vocab_sizes,
    seed=st.integers(0, 10**6),
    permutation_seed=st.none() | st.integers(0, 9),
)
@settings(max_examples=80, deadline=None)
def test_codes_are_injective(kind, vocab_size, seed, permutation_seed):
    book = {"binary": {}, "gf2": {"seed": seed}, "linear": {"seed": seed, "width": bits_needed(vocab_size) + 5}}[kind]
    codes = codebook.build(code(kind, permutation_seed=permutation_seed, **book), vocab_size)
    assert set(np.unique(codes)) <= {0, 1}
    assert len(np.unique(codes, axis=0)) == vocab_size


@given(vocab_size=vocab_sizes, seed=st.integers(0, 10**6), random_bias=st.booleans())
@settings(max_examples=60, deadline=None)
def test_the_inverse_of_a_recovers_the_binary_code(vocab_size, seed, random_bias):
    codes = codebook.build(code("gf2", seed=seed, random_bias=random_bias), vocab_size)
    width = codes.shape[1]
    if not random_bias:
        assert not codes[0].any()  # b = 0 unless asked: A 0 = 0
    rows = gf2.sample_invertible(width, seed, 4)
    recovered = gf2.apply(gf2.inverse(rows), codes ^ codes[0])
    assert (recovered == codebook.binary(np.arange(vocab_size), width)).all()


def test_bias_is_used_when_asked():
    biased = [codebook.build(code("gf2", seed=seed, random_bias=True), 100)[0].any() for seed in range(8)]
    assert any(biased)


@given(vocab_size=st.integers(2, 500), d_model=st.integers(9, 100), kind=st.sampled_from(["binary", "gf2"]))
@settings(max_examples=60, deadline=None)
def test_tiling_repeats_the_code_and_cuts_the_last_copy(vocab_size, d_model, kind):
    spec = code(kind)
    built = module.build(spec, vocab_size, d_model, INIT_STD)
    codes = codebook.build(spec, vocab_size)
    width = codes.shape[1]
    identity = np.eye(width, dtype=np.float32)
    r = np.concatenate([identity] * (d_model // width + 1))[:d_model]  # R = [I; I; ...], the last copy cut
    assert torch.equal(built(torch.arange(vocab_size)), torch.from_numpy(codes.astype(np.float32) @ r.T))


@given(
    kind=st.sampled_from(["binary", "gf2", "linear"]),
    lifted=st.sampled_from(["tile", "hadamard", "orthogonal"]),
    scale=st.sampled_from(["unit", "matched"]),
    vocab_size=st.integers(2, 300),
    d_model=st.integers(16, 96),
    shape=st.sampled_from([(5,), (2, 3), (1, 2, 4)]),
)
@settings(max_examples=80, deadline=None)
def test_modules_compute_their_definition(kind, lifted, scale, vocab_size, d_model, shape):
    spec = code(kind, lift=lifted, scale=scale, **({"width": 14} if kind == "linear" else {}))
    built = module.build(spec, vocab_size, d_model, INIT_STD)
    ids = torch.randint(vocab_size, shape, generator=torch.Generator().manual_seed(0))
    x = built(ids)
    assert x.shape == (*shape, d_model) and x.dtype == torch.float32
    codes = codebook.build(spec, vocab_size)
    expected = lift.lift(codes, lifted, d_model, spec.lift_seed)[ids.numpy()] * built.scale
    np.testing.assert_allclose(x.numpy(), expected, rtol=1e-6, atol=1e-6)
    assert not list(built.parameters())
    if scale == "matched" and codes.any():
        norms = np.linalg.norm(lift.lift(codes, lifted, d_model, spec.lift_seed) * built.scale, axis=1)
        assert np.sqrt((norms**2).mean()) == pytest.approx(INIT_STD * math.sqrt(d_model), rel=1e-4)


@pytest.mark.parametrize("d_model", [64, 96, 130])
def test_ranks_of_the_lifts(d_model):
    vocab_size = 512  # K = 9
    codes = codebook.build(code("binary"), vocab_size)
    ranks = {
        kind: np.linalg.matrix_rank(lift.lift(codes, kind, d_model, 0)) for kind in ("tile", "orthogonal", "hadamard")
    }
    assert ranks == {"tile": 9, "orthogonal": 9, "hadamard": d_model}


def test_orthogonal_columns_have_the_norm_of_tiled_ones():
    r = lift.orthogonal_matrix(16, 2048, 3).astype(np.float64)
    np.testing.assert_allclose(r.T @ r, 128 * np.eye(16), atol=1e-2)


def test_hadamard_starts_with_the_single_bits():
    codes = codebook.build(code("binary"), 64)
    assert (lift.lift(codes, "hadamard", 32, 0)[:, :6] == 1 - 2 * codes.astype(np.float32)).all()


def test_permutation_reorders_the_rows():
    plain, mixed = (codebook.build(code("binary", permutation_seed=seed), 1000) for seed in (None, 5))
    assert sorted(map(bytes, plain)) == sorted(map(bytes, mixed)) and (plain != mixed).any()
    assert (codebook.permutation(1000, 5) != codebook.permutation(1000, 6)).any()


def test_gaussian_codes_are_standard_normal_and_fixed():
    codes = codebook.build(code("gaussian", width=16, seed=1), 4096)
    assert codes.dtype == np.float32 and abs(codes.mean()) < 0.02 and abs(codes.std() - 1) < 0.02
    assert (codes == codebook.build(code("gaussian", width=16, seed=1), 4096)).all()


def test_a_learned_code_is_a_parameter_under_the_same_lift():
    built = module.build(code("learned", width=4), 10, 8, INIT_STD)
    assert [name for name, _ in built.named_parameters()] == ["codebook"]
    with torch.no_grad():
        built.codebook.copy_(torch.arange(40.0).view(10, 4))
    assert built(torch.tensor([1])).tolist() == [[4, 5, 6, 7, 4, 5, 6, 7]]


def test_codes_command_writes_the_code_book(tmp_path, root):
    out = tmp_path / "codes.npy"
    quickstart = str(root / "config/quickstart.yaml")
    assert main(["codes", "--config", quickstart, "--interface", "binary12", "--out", str(out)]) == 0
    assert (np.load(out) == codebook.binary(np.arange(4096), 12)).all()


@pytest.mark.parametrize(("name", "said"), [("binary13", "did you mean 'binary12'"), ("learned", "no fixed code book")])
def test_codes_command_refuses_what_has_no_code_book(tmp_path, root, capsys, name, said):
    out = tmp_path / "codes.npy"
    assert (
        main(["codes", "--config", str(root / "config/quickstart.yaml"), "--interface", name, "--out", str(out)]) == 2
    )
    error = capsys.readouterr().err.strip()
    assert said in error and "\n" not in error and not out.exists()
