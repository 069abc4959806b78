"""Cache entries that say which position they belong to, and caches remembered bit for bit."""

import numpy as np
import torch


def entries(*positions):
    """Keys, values and positions for LayerCache.append; each number says which position it belongs to."""
    key = torch.tensor(positions, dtype=torch.float64).view(1, 1, -1, 1).expand(1, 1, -1, 2).contiguous()
    return key, key + 100, np.array(positions)


def appended(cache, *positions):
    return cache.append(*entries(*positions))


def painted(cache):
    """The position in each slot, after checking that key and value lie where their position does."""
    positions = cache.position.tolist()
    assert cache.key[0, 0, :, 0].tolist() == positions
    assert cache.value[0, 0, :, 1].tolist() == [position + 100 for position in positions]
    assert len(cache) == len(positions)
    return positions


def snapshot(cache):
    return [(layer.key.clone(), layer.value.clone(), layer.position.copy()) for layer in cache.layers]


def same(cache, taken):
    """Bit for bit what it was."""
    return all(
        torch.equal(layer.key, key) and torch.equal(layer.value, value) and np.array_equal(layer.position, position)
        for layer, (key, value, position) in zip(cache.layers, taken, strict=True)
    )
