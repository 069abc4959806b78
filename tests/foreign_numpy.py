"""Hand-written NumPy decoders, right and wrong, as test material for a checker of KV caches.

Six families of small decoders. Each has `full(ids)`, an uncached forward over the whole sequence, and
`step(ids, cache)`, a cached path written separately, in which one named fault can be switched on.
`python foreign_numpy.py` proves that every fault is active and that every correct decoder agrees.
"""

from __future__ import annotations

import copy
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray
Triple = tuple[Callable[..., Any], Callable[..., Any], Any]


# --------------------------------------------------------------------------------------------------------------
# small shared pieces


def softmax(scores: Array) -> Array:
    """Softmax over the last axis."""
    shifted = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def rms(x: Array) -> Array:
    """Root-mean-square normalisation without a gain."""
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-6)


def layer_norm(x: Array) -> Array:
    """Layer normalisation without gain and bias."""
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + 1e-5)


def gelu(x: Array) -> Array:
    """The tanh form of GELU."""
    return 0.5 * x * (1.0 + np.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def dense(rng: np.random.Generator, rows: int, cols: int, gain: float = 1.0) -> Array:
    """A random matrix that keeps unit variance, times `gain`."""
    return rng.normal(size=(rows, cols)) * (gain / np.sqrt(rows))


def append(past: Array | None, new: Array, axis: int = 1) -> Array:
    """`past` with `new` behind it; `past` may be absent."""
    return new if past is None else np.concatenate([past, new], axis=axis)


# --------------------------------------------------------------------------------------------------------------
# 1. rotary positions, grouped queries, RMSNorm, SwiGLU; the cache is a list


def rotate_pairs(x: Array, positions: Array, base: float) -> Array:
    """Rotary embedding of neighbouring pairs; x is (heads, n, dim)."""
    dim = x.shape[-1]
    angle = positions[:, None] * base ** (-np.arange(0, dim, 2) / dim)
    cos, sin = np.cos(angle).astype(x.dtype), np.sin(angle).astype(x.dtype)
    even, odd = x[..., 0::2], x[..., 1::2]
    return np.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1).reshape(x.shape)


class LlamaLike:
    """Three pre-norm layers; cache = [offset, (k, v), (k, v), ...], a new list at every call."""

    family = "llama"
    heads, kv_heads, hd, dim, vocab = 4, 2, 8, 32, 40

    def __init__(
        self,
        seed: int,
        fault: str = "",
        layers: int = 3,
        dtype: Any = np.float64,
        attn_dtype: Any = None,
        pre_rope: bool = False,
        share_last: bool = False,
        as_list: bool = False,
    ) -> None:
        rng = np.random.default_rng(seed)
        self.fault, self.layers, self.dtype, self.base = fault, layers, np.dtype(dtype), 500.0
        self.attn_dtype = np.dtype(attn_dtype or dtype)
        self.pre_rope, self.share_last, self.as_list = pre_rope, share_last, as_list
        width, kv_width = self.heads * self.hd, self.kv_heads * self.hd
        self.embed = rng.normal(size=(self.vocab, self.dim)).astype(dtype)
        self.w = [
            {
                "q": dense(rng, self.dim, width, 1.5).astype(dtype),
                "k": dense(rng, self.dim, kv_width, 1.5).astype(dtype),
                "v": dense(rng, self.dim, kv_width, 1.5).astype(dtype),
                "o": dense(rng, width, self.dim, 1.2).astype(dtype),
                "gate": dense(rng, self.dim, 48).astype(dtype),
                "up": dense(rng, self.dim, 48).astype(dtype),
                "down": dense(rng, 48, self.dim).astype(dtype),
            }
            for _ in range(layers)
        ]
        self.gain = rng.uniform(0.6, 1.6, size=self.dim).astype(dtype)
        self.tables: dict[int, Array] = {}

    def _mlp(self, w: dict[str, Array], h: Array) -> Array:
        gate = h @ w["gate"]
        return (gate / (1 + np.exp(-gate)) * (h @ w["up"])) @ w["down"]

    def full(self, ids: Sequence[int]) -> Any:
        """Hidden states of the whole sequence."""
        x = self.embed[np.asarray(ids)]
        t, group = len(x), self.heads // self.kv_heads
        base = self.base * 20 if self.fault == "ntk_dynamic" and t > 8 else self.base
        phase = np.exp(1j * np.outer(np.arange(t), base ** (-np.arange(0, self.hd, 2) / self.hd)))[:, None]

        def turn(a: Array) -> Array:
            z = (a[..., 0::2] + 1j * a[..., 1::2]) * phase
            return np.stack([z.real, z.imag], -1).reshape(a.shape).astype(self.dtype)

        causal = np.triu(np.full((t, t), -np.inf), 1).astype(self.attn_dtype)
        k = v = x
        for index, w in enumerate(self.w):
            h = rms(x)
            q = turn((h @ w["q"]).reshape(t, self.heads, self.hd))
            if not (self.share_last and index == self.layers - 1):
                k = np.repeat(turn((h @ w["k"]).reshape(t, self.kv_heads, self.hd)), group, axis=1)
                v = np.repeat((h @ w["v"]).reshape(t, self.kv_heads, self.hd), group, axis=1)
            a = self.attn_dtype
            scores = np.einsum("qhd,khd->hqk", q.astype(a), k.astype(a)) / float(np.sqrt(self.hd)) + causal
            mixed = np.einsum("hqk,khd->qhd", softmax(scores), v.astype(a)).reshape(t, -1).astype(self.dtype)
            x = x + mixed @ w["o"]
            x = x + self._mlp(w, rms(x))
        out = rms(x) * self.gain
        return out.tolist() if self.as_list else out

    def _positions(self, cache: list[Any], q: int) -> Array:
        """Absolute positions of the q new tokens; also moves the offset on."""
        f, start = self.fault, cache[0]
        cache[0] = start + q
        if f == "pos_zero":
            return np.arange(q)
        if f == "pos_prompt_twice" and start > 0 and len(cache) == self.layers + 1:
            cache[0] += start
            cache.append("decoding")
            return 2 * start + np.arange(q)
        if f == "pos_memo":
            return self.tables.setdefault(q, start + np.arange(q))
        return start + np.arange(q)

    def _mask(self, index: int, q: int, n: int) -> Array:
        """Boolean (q, n) mask, True where attention is allowed."""
        f, last = self.fault, index == self.layers - 1
        right = np.tri(q, n, n - q, dtype=bool)
        if f == "topleft" or (f == "topleft_last" and last) or (f == "topleft_multi" and q > 1):
            return np.tri(q, n, 0, dtype=bool)
        if f == "nomask_cached" and n > q:
            return np.ones((q, n), dtype=bool)
        if f == "nomask_short" and q <= 3:
            return np.ones((q, n), dtype=bool)
        if f == "leak_next" and n > q:
            return np.tri(q, n, n - q + 1, dtype=bool)
        return right

    def step(self, ids: Sequence[int], cache: Any = None) -> tuple[Any, Any]:
        """Process the new ids on top of the cache."""
        f, ids = self.fault, np.asarray(ids)
        old, q = cache, len(ids)
        cache = [0] + [None] * self.layers if cache is None else list(cache)
        s = cache[0]
        pos = self._positions(cache, q)
        base = self.base * 20 if f in ("ntk", "ntk_dynamic") and s + q > 8 else self.base
        x = self.embed[ids]
        for index, w in enumerate(self.w):
            h = rms(x)
            split = {name: (h @ w[name]).reshape(q, -1, self.hd).transpose(1, 0, 2) for name in "qkv"}
            slot = 1 if f == "one_list" else index + 1
            shared = self.share_last and index == self.layers - 1
            here = pos
            if (f == "len_after" and index > 0) or (f == "len_query" and shared):
                here = pos + q
            query = rotate_pairs(split["q"], here, base)
            if shared:
                keys, values = cache[slot - 1]
            else:
                new_k = split["k"] if self.pre_rope else rotate_pairs(split["k"], here, base)
                keys, values = self._extend(cache, slot, index, new_k, split["v"], q)
            if self.pre_rope:
                keys = rotate_pairs(keys, np.arange(keys.shape[1]), base)
            mixed = self._attend(query, keys, values, self._mask(index, q, keys.shape[1]), q)
            x = x + mixed @ w["o"]
            x = x + self._mlp(w, rms(x))
        out = rms(x) * self.gain
        if f == "lost_decode" and q == 1 and old is not None:
            cache = [cache[0], *old[1:]]
        return (out.tolist() if self.as_list else out), cache

    def _extend(self, cache: list[Any], slot: int, index: int, k: Array, v: Array, q: int) -> tuple[Array, Array]:
        """Append to the layer's entry and return what this call attends to."""
        f, last = self.fault, index == self.layers - 1
        pk, pv = cache[slot] or (None, None)
        if pk is not None and f == "rope_again":
            pk = rotate_pairs(pk, np.arange(pk.shape[1]), self.base)
        if pk is not None and f == "head_zero":
            pk, pv = pk[[0, 0]], pv[[0, 0]]
        keys, values = append(pk, k), append(pv, v)
        cache[slot] = (keys, values)
        if f == "double_append":
            cache[slot] = (append(keys, k), append(values, v))
        if f == "v_from_k_last" and last and pk is not None:
            values = append(pk, v)
        if f == "missing_self" and pk is not None and q == 1:
            keys, values = pk, pv
        return keys, values

    def _attend(self, query: Array, keys: Array, values: Array, mask: Array, q: int) -> Array:
        """Grouped attention; returns (q, heads * hd)."""
        group = np.arange(self.heads) // (self.heads // self.kv_heads)
        if self.fault == "tile" or (self.fault == "tile_decode" and q == 1):
            group = np.arange(self.heads) % self.kv_heads
        a = self.attn_dtype
        scores = query.astype(a) @ keys.astype(a)[group].swapaxes(1, 2) * float(self.hd**-0.5)
        probs = softmax(np.where(mask, scores, np.array(-np.inf, dtype=a)))
        return (probs @ values.astype(a)[group]).transpose(1, 0, 2).reshape(q, -1).astype(self.dtype)


# --------------------------------------------------------------------------------------------------------------
# 2. learned positions, LayerNorm, GELU, one key head per query head; a preallocated buffer, logits


class KVBuffer:
    """Keys and values of all layers in two preallocated arrays, written in place."""

    def __init__(self, layers: int, heads: int, capacity: int, hd: int, dtype: Any) -> None:
        self.k = np.zeros((layers, heads, capacity, hd), dtype=dtype)
        self.v = np.zeros_like(self.k)
        self.length = 0  # slots in use
        self.seen = 0  # tokens processed
        self.calls = 0

    def reserve(self, n: int, lose: int = 0) -> None:
        """Grow in blocks of eight slots until n fit."""
        while self.k.shape[2] < n:
            for name in ("k", "v"):
                old = getattr(self, name)
                new = np.zeros((*old.shape[:2], old.shape[2] + 8, old.shape[3]), dtype=old.dtype)
                new[:, :, : max(self.length - lose, 0)] = old[:, :, : max(self.length - lose, 0)]
                setattr(self, name, new)


class SharedBuffer(KVBuffer):
    """A buffer whose copies keep their own length but share the storage."""

    def copy(self) -> SharedBuffer:
        """A copy that forgets to copy the arrays."""
        twin = object.__new__(SharedBuffer)
        twin.__dict__.update(self.__dict__)
        return twin

    def __copy__(self) -> SharedBuffer:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> SharedBuffer:
        return self.copy()


class GPTLike:
    """Learned absolute positions and a preallocated cache; returns logits."""

    family = "gpt"
    heads, hd, dim, context = 4, 8, 32, 512

    def __init__(
        self,
        seed: int,
        fault: str = "",
        layers: int = 2,
        capacity: int = 48,
        vocab: int = 37,
        logit_scale: float = 1.0,
        dtype: Any = np.float64,
    ) -> None:
        rng = np.random.default_rng(seed)
        self.fault, self.layers, self.capacity, self.vocab, self.dtype = fault, layers, capacity, vocab, dtype
        d = self.dim
        self.wte = rng.normal(size=(vocab, d)).astype(dtype)
        self.wpe = rng.normal(size=(self.context, d)).astype(dtype) * 0.8
        self.w = [
            {
                "qkv": np.concatenate([dense(rng, d, 2 * d, 1.5), dense(rng, d, d, 1.3)], axis=1).astype(dtype),
                "bias": rng.normal(size=3 * d).astype(dtype) * 0.3,
                "o": dense(rng, d, d, 1.3).astype(dtype),
                "fc": dense(rng, d, 64, 1.3).astype(dtype),
                "proj": dense(rng, 64, d, 1.3).astype(dtype),
            }
            for _ in range(layers)
        ]
        self.head = dense(rng, d, vocab, logit_scale).astype(dtype)
        self.kept: KVBuffer | None = None

    def full(self, ids: Sequence[int]) -> Array:
        """Logits at every position, head by head with an explicit triangle."""
        t = len(ids)
        x = self.wte[np.asarray(ids)] + self.wpe[:t]
        for w in self.w:
            q, k, v = np.split(layer_norm(x) @ w["qkv"] + w["bias"], 3, axis=1)
            parts = []
            for head in range(self.heads):
                cut = slice(head * self.hd, (head + 1) * self.hd)
                scores = q[:, cut] @ k[:, cut].T / float(np.sqrt(self.hd))
                scores[np.triu_indices(t, 1)] = -np.inf
                parts.append(softmax(scores) @ v[:, cut])
            x = x + np.concatenate(parts, axis=1) @ w["o"]
            x = x + gelu(layer_norm(x) @ w["fc"]) @ w["proj"]
        return layer_norm(x) @ self.head

    def _open(self, cache: Any) -> KVBuffer:
        """The buffer to use for this call."""
        f = self.fault
        if f == "handle":
            buffer = self.kept or KVBuffer(self.layers, self.heads, self.capacity, self.hd, self.dtype)
            buffer.length = buffer.seen = cache or 0
            self.kept = buffer
            return buffer
        if cache is not None:
            return cache
        if f == "not_reset" and self.kept is not None:
            return self.kept
        kind = SharedBuffer if f == "shared_copy" else KVBuffer
        self.kept = kind(self.layers, self.heads, self.capacity, self.hd, self.dtype)
        return self.kept

    def _positions(self, cache: KVBuffer, q: int) -> Array:
        f, s = self.fault, cache.seen
        if f == "pos_zero_decode" and q == 1:
            s = 0
        if f == "pos_plus2" and s >= 7:
            s += 2
        if f == "pos_calls":
            s = cache.calls
        return (s + np.arange(q)) % self.context

    def _mask(self, s: int, q: int) -> Array:
        """(q, capacity), True where a slot may be used."""
        f = self.fault
        rows, cols = s + np.arange(q)[:, None], np.arange(self.slots)[None]
        mask = cols <= rows
        if f == "topleft_slice":
            mask = np.tri(self.slots, dtype=bool)[:q]
        if f == "zeros_seen":
            mask = mask | (cols >= s + q)
        if f == "nomask_object":
            mask = np.broadcast_to(cols < s + q, (q, self.slots))
        return mask

    def step(self, ids: Sequence[int], cache: Any = None) -> tuple[Array, Any]:
        """Write the new keys and values into the buffer, then attend to all of it under a mask."""
        f, q = self.fault, len(ids)
        cache = self._open(cache)
        if f == "hole" and q == 1 and cache.length == cache.seen > 0:
            cache.length += 1
        cache.reserve(cache.length + q, lose=1 if f == "grow_short" else 0)
        self.slots = cache.k.shape[2]
        start = s = cache.length
        x = self.wte[np.asarray(ids)] + self.wpe[self._positions(cache, q)]
        for index, w in enumerate(self.w):
            if f == "len_bumped" and index > 0:
                s = start + q
                cache.length = s
                cache.reserve(s + q)
                self.slots = cache.k.shape[2]
            fused = layer_norm(x) @ w["qkv"] + w["bias"]
            query, k, v = fused.reshape(q, 3, self.heads, self.hd).transpose(1, 2, 0, 3)
            first = 1 if f == "slot0" and s == 0 else 0
            cache.k[index, :, s + first : s + q] = k[:, first:]
            cache.v[index, :, s + first : s + q] = v[:, first:]
            keys, values = cache.k[index], cache.v[index]
            mask = self._mask(s, q)
            scores = query @ keys.swapaxes(1, 2) / float(np.sqrt(self.hd))
            scores = scores + np.where(mask, 0.0, -1e9).astype(self.dtype)
            x = x + (softmax(scores) @ values).swapaxes(0, 1).reshape(q, -1) @ w["o"]
            x = x + gelu(layer_norm(x) @ w["fc"]) @ w["proj"]
        cache.length, cache.seen, cache.calls = start + q, cache.seen + q, cache.calls + 1
        return layer_norm(x) @ self.head, cache.length if f == "handle" else cache


# --------------------------------------------------------------------------------------------------------------
# 3. rotary positions and sliding windows; trimmed, ring, whole or re-based storage


def rotate_half(x: Array, positions: Array, base: float = 200.0, dims: int | None = None) -> Array:
    """Rotary embedding of the two halves (of the first `dims` pairs only, if given)."""
    half = x.shape[-1] // 2
    angle = np.asarray(positions)[:, None] * base ** (-np.arange(half) / half)
    if dims is not None:
        angle = np.where(np.arange(half) < dims, angle, 0.0)
    cos, sin = np.cos(angle).astype(x.dtype), np.sin(angle).astype(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


class WindowDecoder:
    """Sliding-window layers (a window per layer, None is global); the cache is a dict changed in place."""

    family = "window"
    heads, kv_heads, hd, dim, vocab = 4, 2, 8, 32, 48

    def __init__(
        self,
        seed: int,
        fault: str = "",
        windows: tuple[int | None, ...] = (4, 4, 4),
        storage: str = "trim",
        capacity: int = 8,
        neg: float = -1e9,
        dtype: Any = np.float64,
    ) -> None:
        rng = np.random.default_rng(seed)
        self.fault, self.windows, self.storage, self.capacity = fault, windows, storage, capacity
        self.neg, self.dtype = neg, np.dtype(dtype)
        d, kv = self.dim, self.kv_heads * self.hd
        self.embed = rng.normal(size=(self.vocab, d)).astype(dtype)
        shapes = ((d, d, 1.6), (d, kv, 1.6), (d, kv, 1.4), (d, d, 1.2), (d, 40, 1.2), (40, d, 0.8))
        self.w = [[dense(rng, *shape).astype(dtype) for shape in shapes] for _ in windows]

    def full(self, ids: Sequence[int]) -> Array:
        """Hidden states; every row gathers exactly the keys it may use, no mask."""
        x = self.embed[np.asarray(ids)]
        t, half = len(x), self.hd // 2
        turn = np.exp(1j * np.outer(np.arange(t), 200.0 ** (-np.arange(half) / half)))[:, None]

        def spin(a: Array) -> Array:
            z = (a[..., :half] + 1j * a[..., half:]) * turn
            return np.concatenate([z.real, z.imag], axis=-1).astype(self.dtype)

        for window, (wq, wk, wv, wo, w1, w2) in zip(self.windows, self.w, strict=True):
            h = rms(x)
            q = spin((h @ wq).reshape(t, self.heads, self.hd))
            k = spin((h @ wk).reshape(t, self.kv_heads, self.hd)).repeat(self.heads // self.kv_heads, axis=1)
            v = (h @ wv).reshape(t, self.kv_heads, self.hd).repeat(self.heads // self.kv_heads, axis=1)
            mixed = np.empty((t, self.dim), dtype=self.dtype)
            for p in range(t):
                low = 0 if window is None else max(0, p - window + 1)
                scores = np.einsum("hd,jhd->hj", q[p], k[low : p + 1]) / float(np.sqrt(self.hd))
                mixed[p] = np.einsum("hj,jhd->hd", softmax(scores), v[low : p + 1]).ravel()
            x = x + mixed @ wo
            x = x + np.maximum(rms(x) @ w1, 0) ** 2 @ w2
        return rms(x)

    def step(self, ids: Sequence[int], cache: Any = None) -> tuple[Array, Any]:
        """Process the new ids; the window bounds what is kept as well as what is seen."""
        f, q = self.fault, len(ids)
        local = [w for w in self.windows if w is not None]
        if self.storage == "ring" and local and f != "ring_overrun" and q > self.capacity - max(local) + 1:
            raise ValueError(f"a chunk of {q} does not fit a ring of {self.capacity} slots with window {max(local)}")
        if cache is None:
            cache = {"seen": 0, "layers": [{} for _ in self.windows]}
        s = cache["seen"]
        start = s
        if f == "len_layer0" and "k" in cache["layers"][0]:
            start = cache["layers"][0]["k"].shape[1]
        if f == "one_counter":
            start = s % self.capacity
        x = self.embed[np.asarray(ids)]
        for index, (wq, wk, wv, wo, w1, w2) in enumerate(self.w):
            h, layer = rms(x), cache["layers"][index]
            query = (h @ wq).reshape(q, self.heads, self.hd).swapaxes(0, 1)
            k = (h @ wk).reshape(q, self.kv_heads, self.hd).swapaxes(0, 1)
            v = (h @ wv).reshape(q, self.kv_heads, self.hd).swapaxes(0, 1)
            here = start
            if self.storage == "relative":
                here = layer["k"].shape[1] if "k" in layer else 0
            pos = here + np.arange(q)
            query, k = rotate_half(query, pos), rotate_half(k, pos)
            if self.storage == "ring" and self.windows[index] is not None:
                mixed = self._ring(index, layer, query, k, v, s)
            else:
                mixed = self._grow(index, layer, query, k, v, s)
            x = x + mixed @ wo
            x = x + np.maximum(rms(x) @ w1, 0) ** 2 @ w2
        cache["seen"] = s + q
        return rms(x), cache

    def _mix(self, query: Array, keys: Array, values: Array, ok: Array) -> Array:
        share = self.heads // self.kv_heads
        scores = query @ keys.repeat(share, axis=0).swapaxes(1, 2) / float(np.sqrt(self.hd))
        probs = softmax(np.where(ok, scores, np.array(self.neg, dtype=self.dtype)))
        return (probs @ values.repeat(share, axis=0)).swapaxes(0, 1).reshape(query.shape[1], -1)

    def _window_ok(self, index: int, window: int | None, age: Array, q: int, s: int) -> Array:
        """Which keys a row may use, by age (0 is the row itself)."""
        f, causal, last = self.fault, age >= 0, index == len(self.windows) - 1
        if window is None:
            return causal
        missing = (
            (f == "decode_nowin" and q == 1)
            or f == "storage_only"
            or (f == "prefill_nowin" and s == 0)
            or (f == "middle_nowin" and index == 1 and s > 0)
        )
        if missing:
            return causal
        if f == "last_row":
            return causal & (age[-1:] < window)
        if f == "chunk_local":
            return causal & (np.arange(q)[:, None] - np.arange(age.shape[1])[None] < window)
        if f == "wide" or (f == "wide_decode" and q == 1):
            window += 1
        if f == "narrow" or (f == "narrow_last" and last):
            window -= 1
        return causal & (age < window)

    def _grow(self, index: int, layer: dict[str, Any], query: Array, k: Array, v: Array, s: int) -> Array:
        """Concatenate, attend, then keep what the next call needs."""
        f, q, window = self.fault, k.shape[1], self.windows[index]
        if f == "pattern_all" or (f == "pattern_decode" and q == 1):
            window = self.windows[(index + 1) % len(self.windows)]
        ring = self.storage == "ring_first" and window is not None
        pk, pv = self._read_ring(layer, s) if ring else (layer.get("k"), layer.get("v"))
        if f == "cut_past" and pk is not None and window is not None:
            left = max(window - q, 0)
            pk, pv = pk[:, max(pk.shape[1] - left, 0) :], pv[:, max(pv.shape[1] - left, 0) :]
        keys, values = append(pk, k), append(pv, v)
        if f == "trim_first" and window is not None:
            keys, values = keys[:, -window:], values[:, -window:]
        n = keys.shape[1]
        age = (n - q + np.arange(q))[:, None] - np.arange(n)[None]
        mixed = self._mix(query, keys, values, self._window_ok(index, window, age, q, s))
        if ring:
            self._write_ring(layer, k, v, s)
        elif self.storage == "whole" or window is None:
            layer["k"], layer["v"] = keys, values
        else:
            keep = window - 1 + {"wide": 1, "wide_decode": 1, "keep_short": -1}.get(f, 0)
            gone = max(n - keep, 0)
            layer["k"], layer["v"] = keys[:, gone:], values[:, gone:]
            if self.storage == "relative" and gone:
                self._rebase(layer, gone)
        return mixed

    def _rebase(self, layer: dict[str, Any], gone: int) -> None:
        """Turn the kept keys back by the number of evicted ones, so that they start at position 0."""
        f = self.fault
        if f == "no_shift":
            return
        turn = np.full(layer["k"].shape[1], -gone)
        layer["k"] = rotate_half(layer["k"], turn, dims=1 if f == "shift_part" else None)
        if f == "shift_values":
            layer["v"] = rotate_half(layer["v"], turn)

    def _read_ring(self, layer: dict[str, Any], s: int) -> tuple[Any, Any]:
        """The ring's content in the order of time."""
        if "k" not in layer:
            return None, None
        order = np.arange(max(0, s - self.capacity), s)
        slots = order % self.capacity
        if self.fault == "raw_order":
            slots = np.arange(len(order))
        return layer["k"][:, slots], layer["v"][:, slots]

    def _write_ring(self, layer: dict[str, Any], k: Array, v: Array, s: int) -> None:
        """Store the newest keys and values at slot p mod capacity."""
        q, c = k.shape[1], self.capacity
        if "k" not in layer:
            layer["k"] = np.zeros((self.kv_heads, c, self.hd), dtype=self.dtype)
            layer["v"] = np.zeros_like(layer["k"])
        first = max(0, q - c)
        slots = np.arange(s + first, s + q) % (c - 1 if self.fault == "early_wrap" else c)
        layer["k"][:, slots], layer["v"][:, slots] = k[:, first:], v[:, first:]

    def _ring(self, index: int, layer: dict[str, Any], query: Array, k: Array, v: Array, s: int) -> Array:
        """Write into the ring first, then attend by stored positions."""
        f, q, c = self.fault, k.shape[1], self.capacity
        if "k" not in layer:
            layer["k"] = np.zeros((self.kv_heads, c, self.hd), dtype=self.dtype)
            layer["v"] = np.zeros_like(layer["k"])
            layer["pos"] = np.full(c, -1)
        p = s + np.arange(q)
        slots = p % c
        layer["k"][:, slots], layer["v"][:, slots] = k, v
        if f == "pos_slice":
            a = s % c
            layer["pos"][a : a + q] = p[: c - a]
        else:
            layer["pos"][slots] = p
        stored = layer["pos"]
        if f == "slot_order":
            stored = np.arange(c) + max(0, s + q - c)
        age = p[:, None] - stored[None]
        ok = self._window_ok(index, self.windows[index], age, q, s) & (stored >= 0)
        if f == "unfilled":
            ok = ok | (stored < 0)
        return self._mix(query, layer["k"], layer["v"], ok)


# --------------------------------------------------------------------------------------------------------------
# 4. ALiBi and one key head for all query heads; attention and feed-forward in parallel, logits


class FalconLike:
    """ALiBi biases, multi-query attention; cache = {"k": {layer: ...}, "v": {layer: ...}}, changed in place."""

    family = "alibi"
    heads, hd, dim, vocab = 4, 8, 32, 33

    def __init__(self, seed: int, fault: str = "", layers: int = 2, dtype: Any = np.float64) -> None:
        rng = np.random.default_rng(seed)
        self.fault, self.layers, self.dtype = fault, layers, np.dtype(dtype)
        self.slopes = np.array([1.0, 0.5, 0.25, 0.125], dtype=dtype)[:, None, None]
        d = self.dim
        self.embed = rng.normal(size=(self.vocab, d)).astype(dtype)
        self.wq = [dense(rng, d, d, 1.7).astype(dtype) for _ in range(layers)]
        self.wkv = [dense(rng, d, 2 * self.hd, 1.7).astype(dtype) for _ in range(layers)]
        self.wo = [dense(rng, d, d, 1.4).astype(dtype) for _ in range(layers)]
        self.up = [dense(rng, d, 48, 1.2).astype(dtype) for _ in range(layers)]
        self.down = [dense(rng, 48, d).astype(dtype) for _ in range(layers)]
        self.head = dense(rng, d, self.vocab, 3.0).astype(dtype)

    def full(self, ids: Sequence[int]) -> Array:
        """Logits of the whole sequence."""
        x = self.embed[np.asarray(ids)]
        t = len(x)
        bias = np.empty((self.heads, t, t), dtype=self.dtype)
        for i in range(t):
            for j in range(t):
                bias[:, i, j] = self.slopes[:, 0, 0] * (j - i) if j <= i else -np.inf
        for n in range(self.layers):
            h = layer_norm(x)
            q = (h @ self.wq[n]).reshape(t, self.heads, self.hd)
            k, v = np.split(h @ self.wkv[n], 2, axis=1)
            probs = softmax(np.einsum("qhd,kd->hqk", q, k) / float(np.sqrt(self.hd)) + bias)
            mixed = np.einsum("hqk,kd->qhd", probs, v).reshape(t, -1)
            x = x + mixed @ self.wo[n] + np.tanh(h @ self.up[n]) @ self.down[n]
        return layer_norm(x) @ self.head

    def _bias(self, q: int, n: int) -> Array:
        """ALiBi bias (heads, q, n): minus slope times distance."""
        f = self.fault
        rows = np.arange(n - q, n)[:, None]
        if f == "zero_bias" and q == 1:
            return np.zeros((self.heads, 1, 1), dtype=self.dtype)
        if f == "first_rows":
            rows = np.arange(q)[:, None]
        distance = np.abs(rows - np.arange(n)[None]).astype(self.dtype)
        if f == "bias_chunk":
            distance[:, : n - q] = 0
        return -self.slopes * distance

    def _mask(self, q: int, n: int) -> Array:
        f = self.fault
        mask = np.arange(n)[None] <= np.arange(n - q, n)[:, None]
        if f == "own_chunk":
            mask[:, : n - q] = False
        if f == "nomask_unequal" and q != n:
            mask[:] = True
        return mask

    def step(self, ids: Sequence[int], cache: Any = None) -> tuple[Array, Any]:
        """Append to the dictionary and attend."""
        f, q = self.fault, len(ids)
        if cache is None:
            cache = {"k": {}, "v": {}}
        x = self.embed[np.asarray(ids)]
        for n in range(self.layers):
            h = layer_norm(x)
            query = (h @ self.wq[n]).reshape(q, self.heads, self.hd).transpose(1, 0, 2)
            fused = h @ self.wkv[n]
            k, v = fused[:, : self.hd], fused[:, self.hd :]
            slot = 0 if f == "shared_slot" and q == 1 else n
            pk, pv = cache["k"].get(slot), cache["v"].get(slot)
            keys, values = append(pk, k, 0), append(pv, v, 0)
            cache["k"][slot], cache["v"][slot] = keys, values
            total = len(keys)
            scores = query @ keys.T / float(np.sqrt(self.hd)) + self._bias(q, total)
            mixed = softmax(np.where(self._mask(q, total), scores, -np.inf)) @ values
            x = x + mixed.transpose(1, 0, 2).reshape(q, -1) @ self.wo[n] + np.tanh(h @ self.up[n]) @ self.down[n]
        return layer_norm(x) @ self.head, cache


# --------------------------------------------------------------------------------------------------------------
# 5. sinusoidal or no positions, one or two layers, no norm; the cache is a tuple of chunk lists


class PlainDecoder:
    """No normalisation; cache = tuple of layers, each a list of (k, v) chunks; never changed in place."""

    family = "plain"
    heads, hd, dim, vocab = 2, 12, 24, 30

    def __init__(
        self, seed: int, fault: str = "", layers: int = 2, sinus: bool = True, log_scale: bool = False
    ) -> None:
        rng = np.random.default_rng(seed)
        self.fault, self.layers, self.sinus, self.log_scale = fault, layers, sinus, log_scale
        d = self.dim
        self.embed = rng.normal(size=(self.vocab, d))
        self.w = [
            {
                "q": dense(rng, d, d, 1.3),
                "k": dense(rng, d, d, 1.3),
                "v": dense(rng, d, d, 1.2),
                "o": dense(rng, d, d, 1.0),
                "in": dense(rng, d, 32),
                "out": dense(rng, 32, d),
            }
            for _ in range(layers)
        ]
        self.clock = 0
        self.scratch: dict[tuple[int, int], Array] = {}

    def wave(self, positions: Array) -> Array:
        """Sinusoidal embedding of (possibly fractional) positions."""
        rate = 300.0 ** (-np.arange(0, self.dim, 2) / self.dim)
        angle = np.asarray(positions, dtype=float)[:, None] * rate
        return np.concatenate([np.sin(angle), np.cos(angle)], axis=1)

    def full(self, ids: Sequence[int]) -> Array:
        """Hidden states, one row at a time."""
        t = len(ids)
        x = self.embed[np.asarray(ids)]
        if self.sinus:
            x = x + np.stack([self.wave(np.array([p]))[0] for p in range(t)])
        for w in self.w:
            q, k, v = x @ w["q"], x @ w["k"], x @ w["v"]
            mixed = np.zeros_like(x)
            for p in range(t):
                scale = np.log(p + 2.0) if self.log_scale else 1.0
                for head in range(self.heads):
                    cut = slice(head * self.hd, (head + 1) * self.hd)
                    probs = softmax(k[: p + 1, cut] @ q[p, cut] * scale / np.sqrt(self.hd))
                    mixed[p, cut] = probs @ v[: p + 1, cut]
            x = x + mixed @ w["o"]
            x = x + np.tanh(x @ w["in"]) @ w["out"]
        return x

    def _positions(self, s: int, q: int) -> Array:
        if self.fault == "clock":
            s, self.clock = self.clock, self.clock + q
        return s + np.arange(q)

    def step(self, ids: Sequence[int], cache: Any = None) -> tuple[Array, Any]:
        """Attend to the stored chunks and the new one."""
        f, q = self.fault, len(ids)
        chunks, seen = cache if cache is not None else (([],) * self.layers, 0)
        x = self.embed[np.asarray(ids)]
        if self.sinus:
            x = x + self.wave(self._positions(seen, q))
        stored = []
        for index, w in enumerate(self.w):
            last = index == self.layers - 1
            past = chunks[index]
            kv = np.stack([x @ w["k"], x @ w["v"]])
            if f == "scratch":
                view = self.scratch.setdefault((index, q), np.empty_like(kv))
                view[:] = kv
                kv = view
            parts = [*past, kv]
            stored.append(parts)
            keys, values = np.concatenate(parts, axis=1)
            n = keys.shape[0]
            mask = np.tri(q, n, n - q, dtype=bool)
            if (f == "topleft" or (f == "topleft_late" and seen >= 6)) and past:
                mask = np.tri(q, n, 0, dtype=bool)
            if f == "nomask_last" and past and last:
                mask = np.ones((q, n), dtype=bool)
            scale = np.ones(q)
            if self.log_scale:
                scale = np.log(np.full(q, seen + q + 1.0) if f == "log_total" else seen + np.arange(q) + 2.0)
            heads = []
            for query, key, value in zip(
                np.split(x @ w["q"], self.heads, axis=1),
                np.split(keys, self.heads, axis=1),
                np.split(values, self.heads, axis=1),
                strict=True,
            ):
                scores = (query * scale[:, None]) @ key.T / np.sqrt(self.hd)
                heads.append(softmax(np.where(mask, scores, -np.inf)) @ value)
            x = x + np.hstack(heads) @ w["o"]
            x = x + np.tanh(x @ w["in"]) @ w["out"]
        return x, (tuple(stored), seen + q)


# --------------------------------------------------------------------------------------------------------------
# 6. attention sinks with absolute rotary positions: the first two tokens stay, then a window of four


class SinkDecoder:
    """Keeps the first `sinks` keys and the last `window` ones; positions stay absolute; dict cache, in place."""

    family = "sinks"
    heads, hd, dim, vocab = 2, 12, 24, 36

    def __init__(self, seed: int, fault: str = "", sinks: int = 2, window: int = 4, layers: int = 2) -> None:
        rng = np.random.default_rng(seed)
        self.fault, self.sinks, self.window, self.layers = fault, sinks, window, layers
        d = self.dim
        self.embed = rng.normal(size=(self.vocab, d))
        self.w = [
            [dense(rng, d, d, g) for g in (1.6, 1.6, 1.4, 1.2)] + [dense(rng, d, 32), dense(rng, 32, d)]
            for _ in range(layers)
        ]

    def _split(self, a: Array) -> Array:
        return a.reshape(len(a), self.heads, self.hd).swapaxes(0, 1)

    def full(self, ids: Sequence[int]) -> Array:
        """Hidden states, with the (T, T) mask written out."""
        x = self.embed[np.asarray(ids)]
        t, half = len(x), self.hd // 2
        turn = np.exp(1j * np.outer(np.arange(t), 200.0 ** (-np.arange(half) / half)))
        allowed = np.array([[j <= i and (i - j < self.window or j < self.sinks) for j in range(t)] for i in range(t)])
        for wq, wk, wv, wo, w1, w2 in self.w:
            h = rms(x)
            mixed = []
            for head in range(self.heads):
                cut = slice(head * self.hd, (head + 1) * self.hd)
                zq = (h @ wq[:, cut])[:, :half] + 1j * (h @ wq[:, cut])[:, half:]
                zk = (h @ wk[:, cut])[:, :half] + 1j * (h @ wk[:, cut])[:, half:]
                scores = ((zq * turn) @ (zk * turn).conj().T).real / np.sqrt(self.hd)
                mixed.append(softmax(np.where(allowed, scores, -np.inf)) @ (h @ wv[:, cut]))
            x = x + np.concatenate(mixed, axis=1) @ wo
            x = x + np.tanh(rms(x) @ w1) @ w2
        return x

    def step(self, ids: Sequence[int], cache: Any = None) -> tuple[Array, Any]:
        """Attend to sinks, window and new tokens, then evict; keys are stored before the rotation."""
        f, q = self.fault, len(ids)
        if cache is None:
            empty = np.zeros((self.heads, 0, self.hd))
            cache = {"next": 0, "layers": [{"k": empty, "v": empty, "pos": np.zeros(0, int)} for _ in self.w]}
        p = cache["next"] + np.arange(q)
        x = self.embed[np.asarray(ids)]
        for (wq, wk, wv, wo, w1, w2), layer in zip(self.w, cache["layers"], strict=True):
            h = rms(x)
            pos = np.concatenate([layer["pos"], p])
            keys = append(layer["k"], self._split(h @ wk))
            values = append(layer["v"], self._split(h @ wv))
            if f == "evict_first":
                keep = self._kept(pos, p[-1])
                pos, keys, values = pos[keep], keys[:, keep], values[:, keep]
            query_at, keys_at = p, pos
            if f == "slots" or f == "newest_absolute":
                keys_at = np.arange(len(pos))
                query_at = keys_at[-q:]
            if f == "newest_absolute":
                query_at, keys_at = p, np.concatenate([keys_at[:-q], p])
            width = self.window + (1 if f == "wide" else 0)
            age = p[:, None] - pos[None]
            ok = (age >= 0) & ((age < width) | (pos < self.sinks)[None])
            scores = rotate_half(self._split(h @ wq), query_at) @ rotate_half(keys, keys_at).swapaxes(1, 2)
            probs = softmax(np.where(ok, scores / np.sqrt(self.hd), -1e9))
            keep = self._kept(pos, p[-1] + 1)
            layer["pos"], layer["k"], layer["v"] = pos[keep], keys[:, keep], values[:, keep]
            x = x + (probs @ values).swapaxes(0, 1).reshape(q, -1) @ wo
            x = x + np.tanh(rms(x) @ w1) @ w2
        cache["next"] += q
        return x, cache

    def _kept(self, pos: Array, newest: int) -> Array:
        """What a query at position `newest` can still use."""
        reach = self.window + (1 if self.fault == "wide" else 0)
        return (pos < self.sinks) | (pos > newest - reach)


# --------------------------------------------------------------------------------------------------------------
# the cases


@dataclass(frozen=True)
class Case:
    """One decoder under one name; fault_class None means that it is correct."""

    name: str
    fault_class: str | None
    family: str
    make: Callable[[int], Triple]
    what: str


CASES: list[Case] = []
SOUND: dict[str, Callable[[int], Triple]] = {}


def _add(kind: Any, fault_class: str | None, fault: str, length: int, what: str, tag: str = "", **options: Any) -> None:
    """Register a case, and the same decoder without its fault for check()."""
    name = "-".join(part for part in (kind.family, fault or "correct", tag) if part)

    def build(seed: int, fault: str) -> Triple:
        model = kind(seed, fault=fault, **options)
        order = np.random.default_rng(seed + 1000).permutation(model.vocab)
        ids = np.resize(order, length)
        return model.full, model.step, ids if length % 4 else ids.tolist()

    CASES.append(Case(name, fault_class, kind.family, lambda seed: build(seed, fault), what))
    SOUND[name] = lambda seed: build(seed, "")


HYBRID = (4, 4, None)
_L, _G, _W, _A, _P, _S = LlamaLike, GPTLike, WindowDecoder, FalconLike, PlainDecoder, SinkDecoder

# correct decoders
_add(_L, None, "", 12, "float64, a new list at every call")
_add(_L, None, "", 14, "float32 throughout", "float32", dtype=np.float32)
_add(_L, None, "", 12, "float16 weights, activations and outputs", "float16", dtype=np.float16)
_add(_L, None, "", 12, "float32 attention inside a float64 model", "mixed", attn_dtype=np.float32)
_add(_L, None, "", 13, "keys cached before RoPE, rotated at use", "prerope", pre_rope=True)
_add(_L, None, "", 12, "the last layer reuses the keys and values of the one before", "sharedkv", share_last=True)
_add(_L, None, "", 10, "one layer, outputs are nested lists", "lists", layers=1, as_list=True)
_add(_G, None, "", 12, "preallocated buffer of 48 slots, changed in place")
_add(_G, None, "", 14, "buffer grows by blocks of eight; logits of scale 100", "scale100", capacity=8, logit_scale=60.0)
_add(_G, None, "", 16, "float32, vocabulary of 11: ids repeat", "smallvocab", vocab=11, dtype=np.float32)
_add(_W, None, "", 16, "window 4 everywhere, keeps W-1 keys after attending")
_add(_W, None, "", 18, "local, local, global; trimmed", "hybrid", windows=HYBRID)
_add(_W, None, "", 17, "ring of 3 slots that attends before it writes", "ringfirst", storage="ring_first", capacity=3)
_add(_W, None, "", 18, "ring of 8 that writes first, refuses chunks above 5", "ring", storage="ring", windows=HYBRID)
_add(_W, None, "", 15, "kept keys are turned back to start at position 0", "relative", storage="relative")
_add(_W, None, "", 20, "everything kept, windows only in the mask, float32", "whole", storage="whole", dtype=np.float32)
_add(_A, None, "", 12, "ALiBi, multi-query, dict cache changed in place")
_add(_P, None, "", 11, "sinusoidal, two layers, no norm, tuple of chunk lists")
_add(_P, None, "", 9, "no positions, one layer, log-scaled queries", "nope", layers=1, sinus=False, log_scale=True)
_add(_S, None, "", 16, "two sinks and a window of 4, absolute positions, keys stored before RoPE")

# C1: causal mask aligned to the top left
_add(_L, "C1", "topleft", 12, "np.tri(q, n) without the n - q diagonal, all layers")
_add(_L, "C1", "topleft_last", 13, "top-left triangle in the last layer only")
_add(_L, "C1", "topleft_multi", 12, "top-left triangle only for calls of several tokens; decode is right")
_add(_G, "C1", "topleft_slice", 12, "rows 0..q-1 of the full triangle instead of rows s..s+q-1")
_add(_A, "C1", "own_chunk", 12, "the mask leaves out the cached prefix: a call sees only its own chunk")
_add(_P, "C1", "topleft", 10, "top-left triangle, one layer without positions", "nope", layers=1, sinus=False)
_add(_P, "C1", "topleft_late", 14, "top-left triangle once six tokens are cached")

# C3: wrong slot
_add(_L, "C3", "one_list", 12, "all layers append to and read from the first layer's entry")
_add(_L, "C3", "tile", 13, "query head h uses KV head h mod 2 in the cached path")
_add(_L, "C3", "tile_decode", 12, "query head h uses KV head h mod 2 when q == 1")
_add(_A, "C3", "shared_slot", 12, "single-token calls of all layers use the first layer's entry")
_add(_L, "C3", "head_zero", 14, "cached keys and values of KV head 1 are read from KV head 0")
_add(_L, "C3", "v_from_k_last", 12, "cached values of the last layer are read from its keys")
_add(_W, "C3", "pattern_decode", 18, "windows shifted by one layer in decode", windows=HYBRID, storage="whole")
_add(_W, "C3", "pattern_all", 16, "windows shifted by one layer in step", windows=HYBRID, storage="whole")

# C4: position offset of the new tokens
_add(_L, "C4", "pos_zero", 12, "positions restart at 0 in every call (RoPE)")
_add(_L, "C4", "pos_prompt_twice", 12, "the prompt length is added again at the first later call")
_add(_L, "C4", "pos_memo", 12, "rotary positions memoised by q alone, on the model")
_add(_G, "C4", "pos_zero_decode", 13, "learned position 0 for every single-token call")
_add(_G, "C4", "pos_plus2", 14, "learned positions two too far once seven are cached")
_add(_G, "C4", "pos_calls", 12, "the position counter advances by one per call instead of q")

# C5: window width off by one
_add(_W, "C5", "wide", 12, "age <= W and W keys kept: one key too many everywhere")
_add(_W, "C5", "narrow", 12, "age < W-1 everywhere")
_add(_W, "C5", "wide_decode", 16, "one key too many only when q == 1")
_add(_W, "C5", "keep_short", 14, "keeps W-2 past keys; the mask is right")
_add(_W, "C5", "narrow_last", 16, "one key too few in the last layer", "ringfirst", storage="ring_first", capacity=3)
_add(_S, "C5", "wide", 16, "window one too wide beside two sinks")

# C6: window missing on one path, or one row's window for all
_add(_W, "C6", "decode_nowin", 16, "no mask at all when q == 1, everything kept", storage="whole")
_add(_W, "C6", "storage_only", 14, "W-1 past keys kept, causal mask only")
_add(_W, "C6", "last_row", 16, "all rows of a chunk use the window of its last row", storage="whole")
_add(_W, "C6", "chunk_local", 15, "the window is measured from the row number inside the chunk", storage="whole")
_add(_W, "C6", "middle_nowin", 18, "the second layer forgets its window once something is cached", storage="whole")
_add(_W, "C6", "prefill_nowin", 13, "the first call has no window", windows=HYBRID)

# C9: evict or overwrite before attending
_add(_W, "C9", "trim_first", 12, "append, trim to W, attend; rows without keys average what is there")
_add(_W, "C9", "trim_first", 16, "append, trim to W, attend; rows without keys become NaN", "nan", neg=-np.inf)
_add(_W, "C9", "cut_past", 15, "the past is cut to W - q keys before a chunk of q is appended")
_add(_W, "C9", "ring_overrun", 18, "ring of 2W slots written first, takes any chunk (safe up to 5)", storage="ring")
_add(_S, "C9", "evict_first", 14, "evicts between sinks and window before the chunk has attended")

# C10: rotation of cached keys
_add(_L, "C10", "rope_again", 12, "all cached keys are rotated again at every call")
_add(_W, "C10", "no_shift", 14, "kept keys not turned back, new ones at the kept count", storage="relative")
_add(_W, "C10", "shift_part", 16, "only the first of four rotary pairs is turned back", storage="relative")
_add(_W, "C10", "shift_values", 13, "the values are turned back as well", storage="relative")
_add(_S, "C10", "slots", 16, "sinks re-indexed: rotary positions are the slots in the cache")
_add(_S, "C10", "newest_absolute", 18, "cached keys rotated to their slots, queries and new keys to true positions")

# C11: capacity for length, append book-keeping
_add(_G, "C11", "zeros_seen", 12, "unwritten slots of the buffer are attended")
_add(_G, "C11", "hole", 12, "the first single-token call writes one slot late; the hole is attended")
_add(_G, "C11", "slot0", 12, "the first token's slot is never written")
_add(_G, "C11", "grow_short", 14, "growing the buffer copies one entry too few", capacity=8)
_add(_L, "C11", "double_append", 12, "every call's keys and values are stored twice")
_add(_L, "C11", "missing_self", 12, "a single token attends before it is appended")
_add(_W, "C11", "unfilled", 16, "empty slots of a ring are attended until it is full", storage="ring")

# C12: ring order and book-keeping
_add(_W, "C12", "slot_order", 18, "slots are taken to be in the order of time after the wrap", storage="ring")
_add(_W, "C12", "raw_order", 16, "a wrapped ring is read in slot order", storage="ring_first", capacity=3)
_add(_W, "C12", "pos_slice", 17, "stored positions written by a slice cut at the ring's end", storage="ring")
_add(_W, "C12", "early_wrap", 14, "the write pointer wraps one slot too early", storage="ring_first", capacity=3)
_add(_W, "C12", "one_counter", 18, "the write pointer is also the position", storage="ring_first", capacity=5)

# C13: length read at the wrong time or from the wrong layer
_add(_L, "C13", "len_after", 12, "layers above the first read the length after the first has appended")
_add(_L, "C13", "len_query", 12, "the KV-sharing layer rotates its queries by the updated length", share_last=True)
_add(_W, "C13", "len_layer0", 18, "the length is that of the trimmed first layer", windows=HYBRID)
_add(_G, "C13", "len_bumped", 12, "the first layer moves the shared length; later layers write and mask from there")

# C15: causal mask dropped on a multi-token cached call
_add(_L, "C15", "nomask_cached", 12, "no mask once something is cached")
_add(_L, "C15", "nomask_short", 12, "calls of at most three tokens are treated as decode: no mask")
_add(_L, "C15", "leak_next", 14, "cached calls see one token ahead")
_add(_G, "C15", "nomask_object", 12, "no causal mask whenever a cache object exists, prefill included")
_add(_A, "C15", "nomask_unequal", 15, "causal only when q == n")
_add(_P, "C15", "nomask_last", 12, "no mask on cached calls, last layer only")

# C17: aliasing, lost updates, no reset
_add(_G, "C17", "not_reset", 10, "a run from None continues in the previous run's buffer")
_add(_G, "C17", "handle", 12, "the cache is a length; the buffer belongs to the model and all branches write to it")
_add(_G, "C17", "shared_copy", 12, "copies of the cache share the arrays")
_add(_P, "C17", "clock", 11, "the position counter lives on the model and is not reset")
_add(
    _P, "C17", "scratch", 12, "stored chunks are views of a scratch array, overwritten by the next call of equal length"
)
_add(_L, "C17", "lost_decode", 12, "single-token calls return the old entries: lost update (listed under C11 too)")

# C18: position terms that depend on the total length or on q
_add(_A, "C18", "zero_bias", 12, "the ALiBi bias of a single query is a broadcast zero")
_add(_A, "C18", "first_rows", 12, "rows 0..q-1 of the bias |i - j| instead of the last q")
_add(_A, "C18", "bias_chunk", 14, "the bias covers the new columns; cached ones get zero")
_add(_L, "C18", "ntk", 14, "the rotary base of step grows once s + q exceeds 8; that of full is fixed")
_add(_L, "C18", "ntk_dynamic", 12, "dynamic NTK in full (by total length) and step (by length so far, keys cached)")
_add(_P, "C18", "log_total", 12, "rows scaled by the log of the total length", layers=1, sinus=False, log_scale=True)


# --------------------------------------------------------------------------------------------------------------
# proof that the cases are what they say


def splits(t: int) -> dict[str, list[int]]:
    """Ways to cut t tokens into calls."""
    uneven, left = [], t
    for size in (5, 4, 3, 2, 1, 6, 3):
        uneven.append(min(size, left))
        left -= uneven[-1]
    return {
        "ones": [1] * t,
        "one call": [t],
        "halves": [t // 2, t - t // 2],
        "uneven": [n for n in uneven if n],
        "prefill": [t // 2] + [1] * (t - t // 2),
    }


def run(step: Callable[..., Any], ids: Sequence[int], sizes: Sequence[int], cache: Any = None) -> tuple[Array, Any]:
    """Feed ids in chunks; returns all outputs and the last cache."""
    outs, at = [], 0
    for n in sizes:
        out, cache = step(ids[at : at + n], cache)
        outs.append(np.asarray(out, dtype=np.float64))
        at += n
    return np.concatenate(outs), cache


def gap(got: Array, want: Any) -> float:
    """Largest difference relative to the scale of the reference; NaN counts as infinite."""
    want = np.asarray(want, dtype=np.float64)
    worst = float(np.abs(got - want).max() / np.abs(want).max())
    return np.inf if np.isnan(worst) else worst


def branches(full: Callable[..., Any], step: Callable[..., Any], ids: Sequence[int]) -> float:
    """Two continuations of copies of one prefix, interleaved."""
    half = len(ids) // 2
    tail, other = list(ids[half:]), list(ids[half:])[::-1]
    cut = len(tail) // 2
    _, cache = run(step, ids, [1] * half)
    twin = copy.deepcopy(cache)
    a, cache = run(step, tail[:cut], [1] * cut, cache)
    b, _ = run(step, other, [1] * len(other), twin)
    rest, _ = run(step, tail[cut:], [1] * (len(tail) - cut), cache)
    first = gap(np.concatenate([a, rest]), np.asarray(full(ids))[half:])
    return max(first, gap(b, np.asarray(full([*ids[:half], *other]))[half:]))


def measure(make: Callable[[int], Triple], seed: int) -> dict[str, float]:
    """Error by split (first and second run), and of two branches; absent where ValueError was raised."""
    full, step, ids = make(seed)
    want, errors = full(ids), {}
    for again in ("", " again"):
        for name, sizes in splits(len(ids)).items():
            try:
                errors[name + again] = gap(run(step, ids, sizes)[0], want)
            except ValueError:
                if name == "ones":
                    raise
    errors["branches"] = branches(full, step, ids)
    return errors


def tolerance(case: Case, want: Any) -> float:
    """What counts as rounding for a correct case."""
    if "mixed" in case.name:
        return 1e-5
    return {"float32": 2e-5, "float16": 4e-2}.get(str(np.asarray(want).dtype), 1e-11)


def check(seeds: Sequence[int] = (0, 1, 2)) -> bool:
    """Print a table of all cases; True if every fault is active and every correct decoder agrees."""
    failed, slowest = [], 0.0
    assert len({case.name for case in CASES}) == len(CASES)
    for case in CASES:
        bad, rows = [], []
        for seed in seeds:
            full, step, ids = case.make(seed)
            begin = time.perf_counter()
            full(ids)
            run(step, ids, [1] * len(ids))
            slowest = max(slowest, time.perf_counter() - begin)
            rows.append(measure(case.make, seed))
            if case.fault_class is None:
                bad += [f"{k}={v:.1e}" for k, v in rows[-1].items() if v > tolerance(case, full(ids))]
            else:
                sound = measure(SOUND[case.name], seed)
                bad += [f"without fault {k}={v:.1e}" for k, v in sound.items() if v > 1e-11]
                if max(rows[-1].values()) <= 1e-3:
                    bad.append(f"inactive for seed {seed}")
        worst = {k: max(r.get(k, 0.0) for r in rows) for k in rows[0]}
        cells = " ".join(f"{worst[k]:8.1e}" if k in worst else "  raises" for k in splits(8))
        second = max(v for k, v in worst.items() if k.endswith("again"))
        line = (
            f"{case.fault_class or 'ok':4} {case.name:30} {len(ids):3} {cells} {second:8.1e} {worst['branches']:8.1e}"
        )
        print(line + ("  FAILED: " + ", ".join(bad) if bad else ""))
        failed += [case.name] if bad else []
    counts = Counter(case.fault_class for case in CASES)
    print("columns:", ", ".join(splits(8)), "(first run); second run; branches: largest error relative to full")
    print(f"{counts.pop(None)} correct, {sum(counts.values())} faulty:", dict(counts))
    print(
        f"slowest full + token-by-token step: {slowest * 1e3:.0f} ms;", f"failed: {failed}" if failed else "all passed"
    )
    return not failed


if __name__ == "__main__":
    with np.errstate(invalid="ignore", over="ignore"):
        sys.exit(0 if check() else 1)
