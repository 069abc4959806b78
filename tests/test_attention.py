"""The one attention formula: a case worked by hand, the definition with loops, and what it refuses."""

import numpy as np
import pytest
import torch

from kvcore.attention import attention, merge_heads, split_heads
from kvcore.masks import Mask
from tests import oracle

CAUSAL_2 = Mask()(np.arange(2), np.arange(2))


def tensor(rng, *shape):
    return torch.from_numpy(rng.normal(size=shape))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_equal_scores_average_the_visible_values_exactly(dtype):
    nothing = torch.zeros(1, 1, 2, 2, dtype=dtype)
    value = torch.tensor([[[[2, 4], [6, 8]]]], dtype=dtype)
    context, weights = attention(nothing, nothing, value, CAUSAL_2)
    assert context[0, 0].tolist() == [[2.0, 4.0], [4.0, 6.0]]
    assert weights[0, 0].tolist() == [[1.0, 0.0], [0.5, 0.5]]


def test_the_hand_worked_case_can_fail():
    """Without the mask the first query averages the future in."""
    nothing, value = torch.zeros(1, 1, 2, 2), torch.tensor([[[[2.0, 4.0], [6.0, 8.0]]]])
    context, _ = attention(nothing, nothing, value, np.ones((2, 2), dtype=bool))
    assert context[0, 0].tolist() == [[4.0, 6.0], [4.0, 6.0]]


@pytest.mark.parametrize(("n_heads", "n_kv_heads"), [(1, 1), (4, 4), (4, 2), (4, 1), (6, 3)])
@pytest.mark.parametrize("mask", [Mask(), Mask(window=3), Mask(window=2, n_sinks=1), Mask(causal=False)])
def test_attention_matches_the_definition_head_by_head(n_heads, n_kv_heads, mask):
    rng = np.random.default_rng(5)
    batch, n_old, n_new, head_dim = 2, 4, 3, 4
    query = tensor(rng, batch, n_heads, n_new, head_dim)
    key, value = (tensor(rng, batch, n_kv_heads, n_old + n_new, head_dim) for _ in range(2))
    visible = mask(np.arange(n_old, n_old + n_new), np.arange(n_old + n_new))
    context, _ = attention(query, key, value, visible)
    for b, head, i in np.ndindex(batch, n_heads, n_new):
        kv_head, seen = head // (n_heads // n_kv_heads), np.flatnonzero(visible[i])
        expected = oracle.attend(
            query[b, head, i].tolist(), key[b, kv_head, seen].tolist(), value[b, kv_head, seen].tolist()
        )
        assert np.abs(context[b, head, i].numpy() - expected).max() <= 1e-12


def test_the_wrong_kv_head_shows():
    """Query heads read KV heads in blocks; taking turns instead is another answer."""
    rng = np.random.default_rng(5)
    query, key, value = tensor(rng, 1, 4, 2, 4), tensor(rng, 1, 2, 2, 4), tensor(rng, 1, 2, 2, 4)
    in_blocks, _ = attention(query, key, value, CAUSAL_2)
    in_turns, _ = attention(query, key.repeat(1, 2, 1, 1), value.repeat(1, 2, 1, 1), CAUSAL_2)
    assert (in_blocks - in_turns).abs().max() > 0.1
    assert torch.equal(in_blocks[:, [0, 3]], in_turns[:, [0, 3]])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_each_row_of_weights_sums_to_one_and_is_exactly_zero_where_masked(dtype):
    rng = np.random.default_rng(6)
    query, key, value = (tensor(rng, 2, 4, 9, 4).to(dtype) * 3 for _ in range(3))
    visible = Mask(window=4, n_sinks=1)(np.arange(9), np.arange(9))
    _, weights = attention(query, key, value, visible)
    hidden = weights[..., torch.from_numpy(~visible)]
    assert hidden.numel() > 0
    assert (hidden == 0).all()
    assert (weights.double().sum(dim=-1) - 1).abs().max() <= 9 * torch.finfo(dtype).eps


def test_large_scores_stay_finite():
    query = torch.full((1, 1, 2, 2), 1e4, dtype=torch.float64)
    context, weights = attention(query, query, query, CAUSAL_2)
    assert torch.isfinite(context).all()
    assert weights[0, 0].tolist() == [[1.0, 0.0], [0.5, 0.5]]


def test_a_query_row_without_a_key_is_refused():
    nothing = torch.zeros(1, 1, 3, 2)
    visible = Mask()(np.arange(3), np.arange(3))
    visible[1] = False
    with pytest.raises(ValueError, match="query row 1 sees no key; every query must see at least one"):
        attention(nothing, nothing, nothing, visible)


def test_heads_that_do_not_divide_are_refused():
    with pytest.raises(ValueError, match="4 heads cannot share 3 KV heads; n_kv_heads must divide n_heads"):
        attention(torch.zeros(1, 4, 2, 2), torch.zeros(1, 3, 2, 2), torch.zeros(1, 3, 2, 2), CAUSAL_2)


def test_a_mask_of_another_shape_is_refused():
    nothing = torch.zeros(1, 1, 3, 2)
    with pytest.raises(ValueError, match="for 3 queries and 3 keys"):
        attention(nothing, nothing, nothing, CAUSAL_2)


def test_heads_split_and_merge_in_order():
    rows = torch.arange(2 * 3 * 8).view(2, 3, 8)
    query, key, value = split_heads(rows, (2, 1, 1))
    assert [tuple(part.shape) for part in (query, key, value)] == [(2, 2, 3, 2), (2, 1, 3, 2), (2, 1, 3, 2)]
    assert query[0, :, 0].tolist() == [[0, 1], [2, 3]]
    assert key[0, :, 0].tolist() == [[4, 5]]
    assert value[0, :, 0].tolist() == [[6, 7]]
    assert torch.equal(merge_heads(query), rows[..., :4])
