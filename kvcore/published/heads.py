"""How many KV heads a layer keeps, and how wide their keys and values are."""

from __future__ import annotations

from dataclasses import dataclass

from kvcore.published.reader import MISSING, Reader, short, whole_number


@dataclass(frozen=True)
class Heads:
    """Query heads, KV heads, widths of a key and a value; `stored`: heads in transformers' cache, if others."""

    n_heads: int
    n_kv_heads: int
    key_width: int
    value_width: int
    stored: int | None = None


@dataclass(frozen=True)
class Latent:
    """One compressed row of `rank` numbers a token and a rotary part of `rotary`; `index`: a sparse indexer's key."""

    rank: int
    rotary: int
    index: int = 0


def heads(reader: Reader, d_model: int, n_heads: int) -> Heads:
    """What most layers keep. Raises ValueError for heads that do not divide."""
    family = FAMILIES.get(reader.model_type)
    n_kv_heads, stored = family(reader, n_heads) if family else (_kv_heads(reader, n_heads), None)
    if n_kv_heads > n_heads or n_heads % n_kv_heads:
        raise ValueError(f"{n_heads:,} heads cannot share {n_kv_heads:,} KV heads; the KV heads must divide the heads")
    key_width = head_dim(reader, d_model, n_heads)
    value_width = reader.whole("v_head_dim", "width") if _has(reader, "v_head_dim") else key_width
    return Heads(n_heads, n_kv_heads, key_width, value_width, stored)


def _has(reader: Reader, key: str) -> bool:
    """Whether the file, or its family where the file is silent, gives this key a value."""
    return reader.raw.get(key, reader.defaults.get(key)) is not None


def head_dim(reader: Reader, d_model: int, n_heads: int) -> int:
    """From the file, else the family's own, else the width divided by the heads."""
    name = reader.name_in_file("head_dim")
    if reader.model_type in TWICE_THE_WIDTH and name is None and n_heads <= d_model:
        width = 2 * d_model // n_heads
        reader.told("head_dim", width, "derived", "2 · hidden_size / num_attention_heads")
        return width
    given = reader.whole("head_dim", "width")
    if given is not None:
        return given
    if d_model < n_heads:
        raise ValueError(f"a width of {d_model:,} cannot be divided among {n_heads:,} heads; give head_dim")
    width = d_model // n_heads
    absent = f"{name} is null" if name else "head_dim is neither in the file nor has a default"
    why = f"hidden_size / num_attention_heads, since {absent}"
    reader.told("head_dim", width, "derived", why)
    return width


TWICE_THE_WIDTH = ("zamba", "zamba2")
"""Their attention works on the hidden state beside the embedding."""


def _kv_heads(reader: Reader, n_heads: int) -> int:
    """The general case: the key, the family's default, else one KV head a head."""
    name = reader.name_in_file("num_key_value_heads")
    if name is not None and reader.raw[name] is None and reader.null_kv_heads == "refused":
        default = reader.default("num_key_value_heads")
        raise ValueError(
            f"{name} is null, which {reader.model_type} does not allow; give a whole number"
            + (f", or leave it out for {default}" if default not in (MISSING, None) else "")
        )
    given = reader.whole("num_key_value_heads", "heads")
    if given is not None:
        return given
    why = "null means one KV head a query head" if name else "no key for KV heads: one for each query head"
    reader.told("n_kv_heads", n_heads, "null" if name else "derived", why)
    return n_heads


def _multi_query(reader: Reader, n_heads: int) -> tuple[int, int | None]:
    if reader.flag("multi_query", otherwise=True):
        reader.told("n_kv_heads", 1, "derived", "multi_query is true: one KV head for all")
        return 1, None
    reader.told("n_kv_heads", n_heads, "derived", "multi_query is false: one KV head a query head")
    return n_heads, None


def _falcon(reader: Reader, n_heads: int) -> tuple[int, int | None]:
    """New decoder: num_kv_heads, of which transformers stores a copy a head; else multi_query decides alone."""
    if not reader.flag("new_decoder_architecture"):
        ignored = reader.raw.get("num_kv_heads")
        if ignored is not None:
            why = "num_kv_heads counts only with new_decoder_architecture"
            reader.told("num_kv_heads", whole_number("num_kv_heads", ignored, "heads"), "read", f"{why}; ignored")
        return _multi_query(reader, n_heads)
    given = reader.whole("num_kv_heads", "heads") or reader.whole("num_key_value_heads", "heads")
    if given is None:
        reader.told("n_kv_heads", n_heads, "derived", "new_decoder_architecture without num_kv_heads: one a head")
        return n_heads, None
    why = "transformers' cache stores every head of falcon's newer architecture"
    reader.told("heads in transformers' cache", n_heads, "derived", why)
    return given, n_heads


def _old_falcon(reader: Reader, n_heads: int) -> tuple[int, int | None]:
    """Falcon's files from before it came to transformers: n_head_kv, else multi_query decides."""
    if reader.raw.get("n_head_kv") is not None:
        return reader.whole("num_key_value_heads", "heads"), n_heads
    if reader.flag("multi_query"):
        return _multi_query(reader, n_heads)
    reader.told("n_kv_heads", n_heads, "derived", "neither n_head_kv nor multi_query: one KV head a head")
    return n_heads, None


def _kv_heads_inside(reader: Reader) -> int | None:
    given = reader.inside("attn_config").get("kv_n_heads")
    if given is None:
        return None
    count = whole_number("attn_config.kv_n_heads", given, "heads")
    reader.told("n_kv_heads", count, "read", "attn_config.kv_n_heads in the file")
    return count


def _mpt(reader: Reader, n_heads: int) -> tuple[int, int | None]:
    """attn_config.kv_n_heads of llm-foundry; transformers knows only one KV head a head."""
    count = _kv_heads_inside(reader)
    if count is not None:
        return count, n_heads if count != n_heads else None
    if reader.inside("attn_config").get("attn_type") == "multiquery_attention":
        reader.told("n_kv_heads", 1, "read", "attn_config.attn_type is multiquery_attention")
        return 1, n_heads
    reader.told("n_kv_heads", n_heads, "derived", "no attn_config.kv_n_heads: one KV head a head")
    return n_heads, None


def _dbrx(reader: Reader, n_heads: int) -> tuple[int, int | None]:
    count = _kv_heads_inside(reader)
    if count is not None:
        return count, None
    reader.told("n_kv_heads", 1, "absent", "attn_config.kv_n_heads is not in the file; dbrx assumes 1")
    return 1, None


def _chatglm(reader: Reader, n_heads: int) -> tuple[int, int | None]:
    if reader.flag("multi_query_attention"):
        count = reader.whole("multi_query_group_num", "heads", fallback=1)
        reader.told("n_kv_heads", count, "derived", "multi_query_attention is true: multi_query_group_num")
        return count, None
    reader.told("n_kv_heads", n_heads, "derived", "multi_query_attention is not true: one KV head a head")
    return n_heads, None


def _one_a_head(reader: Reader, n_heads: int) -> tuple[int, int | None]:
    if reader.raw.get("n_head_kv") is not None or reader.raw.get("num_key_value_heads") is not None:
        return _kv_heads(reader, n_heads), None
    reader.told("n_kv_heads", n_heads, "derived", f"{reader.model_type} has one KV head a query head")
    return n_heads, None


FAMILIES = {
    "falcon": _falcon,
    "RefinedWeb": _old_falcon,
    "RefinedWebModel": _old_falcon,
    "gpt_bigcode": _multi_query,
    "mpt": _mpt,
    "dbrx": _dbrx,
    "chatglm": _chatglm,
    **dict.fromkeys(
        ("gpt2", "gpt_neo", "gpt_neox", "gptj", "codegen", "opt", "bloom", "persimmon", "qwen", "phi-msft",
         "openai-gpt", "xglm", "biogpt", "ctrl"),
        _one_a_head,
    ),
}  # fmt: skip
"""Families with keys of their own for KV heads: (KV heads, heads that transformers stores if others)."""


def latent(reader: Reader) -> Latent | None:
    """The compressed row of multi-head latent attention, where the file or the family has one."""
    default, given = reader.defaults.get("kv_lora_rank"), reader.raw.get("kv_lora_rank", MISSING)
    if given is None and default is not None:
        raise ValueError(
            f"kv_lora_rank is null, which {reader.model_type} does not allow; give a whole number, or leave it out for"
            f" {default}"
        )
    if given not in (None, MISSING) and default is None and not reader.generic:
        reader.told("kv_lora_rank", short(given), "read", f"{reader.model_type} has no latent attention; ignored")
        return None
    if not _has(reader, "kv_lora_rank"):
        return None
    rank = reader.whole("kv_lora_rank", "width")
    rotary = reader.whole("qk_rope_head_dim", "width", fallback=0, least=0)
    why = "latent attention keeps the compressed row and the rotary part once; KV heads and head_dim do not count"
    reader.told("elements a token", rank + rotary, "derived", why)
    index = 0
    if _has(reader, "index_head_dim"):
        index = reader.whole("index_head_dim", "width")
        reader.told("indexer's key", index, "derived", "the sparse indexer keeps one key a token beside the latent row")
    return Latent(rank, rotary, index)
