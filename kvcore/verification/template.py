"""A small decoder with a cache, checked by kvcore.verify: copy it, run it, then put your own model in its place.

One line is wrong on purpose, so that there is something to find: it is marked MISTAKE.
"""

import numpy as np

import kvcore

VOCABULARY, WIDTH, LAYERS, MOST = 50, 32, 3, 64


def make_model():
    """What kvcore.verify takes: full, step and token ids."""
    rng = np.random.default_rng(0)
    token_table = rng.normal(0, 1, (VOCABULARY, WIDTH))
    position_table = rng.normal(0, 1, (MOST, WIDTH))
    layers = rng.normal(0, 0.3, (LAYERS, 3, WIDTH, WIDTH))

    def step(token_ids, cache):
        """New tokens -> (outputs (n, WIDTH), cache); cache is None at the start, then keys and values a layer."""
        cache = cache or [(np.empty((0, WIDTH)), np.empty((0, WIDTH)))] * LAYERS
        cached = len(cache[0][0])
        x = token_table[token_ids] + position_table[cached : cached + len(token_ids)]
        longer = []
        for (w_query, w_key, w_value), (keys, values) in zip(layers, cache, strict=True):
            keys, values = np.concatenate([keys, x @ w_key]), np.concatenate([values, x @ w_value])
            longer.append((keys, values))
            scores = (x @ w_query) @ keys.T / np.sqrt(WIDTH)
            # MISTAKE, deliberate: the triangle begins in the top left corner. Right is k=cached + 1.
            scores[np.triu(np.ones(scores.shape, dtype=bool), k=1)] = -np.inf
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            x = np.tanh(x + weights / weights.sum(axis=1, keepdims=True) @ values)
        return x, longer

    def full(token_ids):
        """All tokens in one call -> outputs (T, WIDTH), without a cache."""
        return step(token_ids, None)[0]

    return full, step, [3, 14, 15, 9, 26, 5, 35, 8, 32, 41, 7, 22]


if __name__ == "__main__":
    print(kvcore.verify(*make_model()))
