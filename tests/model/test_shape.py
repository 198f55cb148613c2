"""Counts in closed form, against the parameters of the model itself."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tokencodes.interfaces.spec import TableInterface
from tokencodes.model import accounting, shape
from tokencodes.model.spec import Model


@given(
    vocab_size=st.integers(2, 5000),
    heads=st.integers(1, 4),
    width=st.integers(1, 8),
    layers=st.integers(1, 5),
    d_ff=st.integers(1, 200),
)
@settings(max_examples=40, deadline=None)
def test_any_shape_equals_the_closed_form(vocab_size, heads, width, layers, d_ff):
    d_model = 2 * heads * width
    model = Model(vocab_size=vocab_size, d_model=d_model, n_layers=layers, n_heads=heads, d_ff=d_ff, context_length=8)
    found = accounting.count(TableInterface(kind="table"), model)
    backbone, head = shape.backbone_parameters(model), shape.head_parameters(model)
    assert (found.backbone, found.head, found.input, found.buffers) == (backbone, head, head, 0)
    assert found.trainable == backbone + 2 * head
