"""The lab decoder straight from its definition, one number at a time: slow, and nothing of the engine in it.

NumPy draws the parameters (the definition names its generator) and is used for nothing else.
"""

import math

import numpy as np


def parameters(seed, vocab_size, d_model, n_layers, n_heads, n_kv_heads, cast, n_learned=0):
    """The token table, for each layer W_Q, W_K and W_V, and a table of learned positions, as lists of rows."""
    rng = np.random.default_rng(seed)

    def draw(scale, n_rows, n_columns):
        return rng.normal(0, scale, (n_rows, n_columns)).astype(cast).tolist()

    head_dim = d_model // n_heads
    table = draw(0.3, vocab_size, d_model)
    layers = []
    for _ in range(n_layers):
        w_q = draw(0.25, d_model, n_heads * head_dim)
        w_k = draw(0.25, d_model, n_kv_heads * head_dim)
        w_v = draw(0.25, d_model, n_kv_heads * head_dim)
        layers.append((w_q, w_k, w_v))
    return table, layers, draw(0.3, n_learned, d_model)


def position_vector(position, d_model):
    """sin(p / 10000^(2i/d_model)) in column 2i, cos of the same angle in column 2i + 1."""
    vector = []
    for i in range(d_model // 2):
        angle = position / 10000 ** (2 * i / d_model)
        vector.append(math.sin(angle))
        vector.append(math.cos(angle))
    return vector


def causal(i, j):
    return j <= i


def everything(i, j):
    return True


def windowed(window, n_sinks=0):
    """Key j is visible to query i when it is causal and a sink or among the last `window` positions."""

    def visible(i, j):
        return j <= i and (j < n_sinks or i - j < window)

    return visible


def chunk_numbered_from_zero(n_cached):
    """The wrong chunk mask: behind n_cached positions, query rows count from 0."""

    def visible(i, j):
        return j <= (i - n_cached if i >= n_cached else i)

    return visible


def times(row, matrix):
    """One row times a matrix, one dot product a column."""
    columns = []
    for column in range(len(matrix[0])):
        total = 0.0
        for k in range(len(row)):
            total += row[k] * matrix[k][column]
        columns.append(total)
    return columns


def turned(row, position):
    """Rotary: numbers i and i + d/2 turn by the angle position / 10000^(2i/d)."""
    half = len(row) // 2
    after = list(row)
    for i in range(half):
        angle = position / 10000 ** (2 * i / len(row))
        after[i] = row[i] * math.cos(angle) - row[half + i] * math.sin(angle)
        after[half + i] = row[half + i] * math.cos(angle) + row[i] * math.sin(angle)
    return after


def attend(query, keys, values, biases=None):
    """softmax(query · key / √head_dim + bias) over the given keys, then the weighted sum of their values."""
    scores = []
    for key, bias in zip(keys, biases or [0.0] * len(keys), strict=True):
        scores.append(sum(a * b for a, b in zip(query, key, strict=True)) / math.sqrt(len(query)) + bias)
    top = max(scores)
    exponentials = [math.exp(score - top) for score in scores]
    total = sum(exponentials)
    context = []
    for column in range(len(query)):
        context.append(sum(e * value[column] for e, value in zip(exponentials, values, strict=True)) / total)
    return context


def hidden_states(
    token_ids,
    *,
    seed=7,
    vocab_size=32,
    d_model=16,
    n_layers=2,
    n_heads=1,
    n_kv_heads=1,
    visible=causal,
    input_position=None,
    first=0,
    cast="float64",
    scheme="sinusoidal",
):
    """Hidden states after each layer, [layer][position][column], of tokens at positions first, first + 1, …

    visible(i, j), or one for each layer in turn, speaks of absolute positions; input_position gives each
    token another position to enter with; cast rounds the parameters to another number format once;
    scheme is how positions enter.
    """
    n_learned = 512 if scheme == "learned" else 0
    table, layers, learned = parameters(seed, vocab_size, d_model, n_layers, n_heads, n_kv_heads, cast, n_learned)
    positions = [first + n for n in range(len(token_ids))]
    enter = positions if input_position is None else input_position
    x = []
    for token, position in zip(token_ids, enter, strict=True):
        where = [0.0] * d_model
        if scheme == "sinusoidal":
            where = position_vector(position, d_model)
        elif scheme == "learned":
            where = learned[position]
        x.append([a + b for a, b in zip(table[token], where, strict=True)])

    head_dim = d_model // n_heads
    by_layer = []
    for index, (w_q, w_k, w_v) in enumerate(layers):
        may_see = visible[index % len(visible)] if isinstance(visible, list) else visible
        queries = [times(row, w_q) for row in x]
        keys = [times(row, w_k) for row in x]
        values = [times(row, w_v) for row in x]
        after = []
        for n, i in enumerate(positions):
            seen = [m for m, j in enumerate(positions) if may_see(i, j)]
            context = []
            for head in range(n_heads):
                kv_head = head // (n_heads // n_kv_heads)
                own = slice(head * head_dim, (head + 1) * head_dim)
                shared = slice(kv_head * head_dim, (kv_head + 1) * head_dim)
                query, read = queries[n][own], [keys[m][shared] for m in seen]
                if scheme == "rotary":
                    query = turned(query, enter[n])
                    read = [turned(key, enter[m]) for key, m in zip(read, seen, strict=True)]
                slope = 2 ** (-8 * (head + 1) / n_heads) if scheme == "alibi" else 0
                biases = [-slope * (i - positions[m]) for m in seen]
                context += attend(query, read, [values[m][shared] for m in seen], biases)
            after.append([math.tanh(a + b) for a, b in zip(x[n], context, strict=True)])
        x = after
        by_layer.append(after)
    return by_layer


def decode_setting(decoder, token_ids, windows, n_sinks):
    """The last layer's rows of a decoder configuration whose layers have these windows in turn."""
    visible = [causal if window is None else windowed(window, n_sinks) for window in windows]
    names = ("seed", "vocab_size", "d_model", "n_layers", "n_heads", "n_kv_heads")
    shape = {name: getattr(decoder, name) for name in names}
    return hidden_states([int(t) for t in token_ids], visible=visible, scheme=decoder.positions, **shape)[-1]


def cropped(token_ids, crop, **setting):
    """For each position, the last row of a run over the last `crop` raw tokens: [layer][position][column]."""
    rows = []
    for t in range(len(token_ids)):
        first = max(0, t + 1 - crop)
        rows.append([layer[-1] for layer in hidden_states(token_ids[first : t + 1], first=first, **setting)])
    return [[row[layer] for row in rows] for layer in range(len(rows[0]))]
