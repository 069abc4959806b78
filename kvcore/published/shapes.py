"""What the work of a model needs beyond its cache: the feed-forward, latent ranks, whose entries shared layers read.

Where a family does something that the counts do not cover, `reasons` says so, part by part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvcore.published import families
from kvcore.published.feed_forward import feed_forward, to_shapes
from kvcore.published.kinds import layer_kinds
from kvcore.published.layer import Layer
from kvcore.published.reader import MISSING, Reader

ATTENTION = {
    "jetmoe": "its query and output projections are mixtures of experts",
    "zaya": "its projections mix neighbouring tokens",
    "deepseek_v4": "its attention reads compressed tokens",
    "longcat_flash": "each layer has two attentions",
    "glm5_next_text": "its attention has a form that is not read here",
    "inkling_text": "its attention has further projections and convolutions",
    "inkling2_text": "its attention has further projections and convolutions",
    "inkling2_loop_text": "its attention has further projections and convolutions",
    "hrm_text": "it runs its layers more than once a token",
    "blt": "it is made of several decoders",
    "udop": "it is made of an encoder and a decoder",
    "pi0": "it is made of two decoders",
    "dots3_note_text": "its sliding layers have ranks of their own",
    "mistral_large4_text": "its sliding layers have ranks of their own",
    "step3p5": "its sliding layers have heads of their own",
    "axk2": "its query projection is gated within",
    "diffllama": "its heads work in pairs",
}
"""Families whose attention is not of the form counted here, and why."""

PROJECTIONS = dict.fromkeys(("zamba", "zamba2"), "its attention reads the hidden state beside the embedding")
"""Families with the usual scores, but other projections."""

_GATE = "the output gate of its attention is not counted"
_INPUTS = "its inputs a layer are not counted"

OUTSIDE = {
    **dict.fromkeys(("afmoe", "beam", "dory", "muse_glimmer_text", "muse_spark_text", "laguna", "lfm3", "hy_v4",
                     "hy_v4_vl_text", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "qwen4_exp_text"), _GATE),
    "gemma3n_text": f"{_INPUTS}, nor are its low-rank paths",
    "gemma4_text": _INPUTS,
    **dict.fromkeys(("musicgen_decoder", "musicgen_melody_decoder", "t5gemma2_decoder", "blip_text_model",
                     "pp_formulanet_text", "pix2struct_text_model"), "its cross-attention is not counted"),
    "doge": "what weighs its keys is not counted",
    "evolla": "its further blocks are not counted",
    "idefics": "its cross-attention between the layers is not counted",
}  # fmt: skip
"""Families that multiply matrices outside the five parts, and what."""

CODEBOOKS = ("musicgen_decoder", "musicgen_melody_decoder", "moshi", "pi0", "blt", "udop")
"""Families whose output is not one row over one vocabulary."""


def shapes(reader: Reader, layers: Sequence[Layer], d_model: int) -> dict[str, Any]:
    """Plain data: feed_forward, latent, reads, embedding_width, tied, and reasons with a sentence a part.

    feed_forward is None where its reason is given, latent where no layer is, tied where the file does not tell.

    Raises ValueError for values that are not allowed.
    """
    reasons = _reasons(reader, layers)
    forms, why = feed_forward(reader, layers, d_model)
    if why:
        reasons["feed_forward"] = why
    latent = _latent(reader) if any(layer.kind == "latent" for layer in layers) else None
    if latent and None in (latent["nope"], latent["value"]):
        why = "the file gives no widths for its heads; qk_nope_head_dim and v_head_dim would"
        reasons |= dict.fromkeys(("projections", "scores", "weighted_sum"), why)
        latent = None
    reads = _reads(reader, layers)
    if None in reads:
        why = "no earlier layer of the same kind keeps what the shared layers read"
        reasons |= dict.fromkeys(("projections", "scores", "weighted_sum"), why)
    return {
        "feed_forward": forms and to_shapes(forms),
        "latent": latent,
        "reads": reads,
        "embedding_width": _embedding_width(reader, d_model, reasons),
        "tied": _tied(reader),
        "reasons": reasons,
    }


def _reasons(reader: Reader, layers: Sequence[Layer]) -> dict[str, str]:
    family, found = reader.model_type, {}
    kinds = {layer.kind for layer in layers}
    if family in OUTSIDE:
        found["other"] = f"{family}: {OUTSIDE[family]}"
    if any(layer.state_elements != 0 for layer in layers):
        found["other"] = f"{family}: what its recurrent layers do to mix tokens is not counted"
    if any(layer.index_width for layer in layers):
        why = f"{family}: a sparse indexer chooses the keys that each query reads"
        found |= dict.fromkeys(("scores", "weighted_sum", "other"), why)
    if family in PROJECTIONS:
        found["projections"] = f"{family}: {PROJECTIONS[family]}"
    if "cross" in kinds:
        why = f"{family}: its cross-attention depends on the tokens of another input"
        found |= dict.fromkeys(("projected_rows", "projections", "scores", "weighted_sum"), why)
    if family in ATTENTION:
        why = f"{family}: {ATTENTION[family]}"
        found |= dict.fromkeys(("projected_rows", "projections", "scores", "weighted_sum"), why)
    if why := _own_heads(reader):
        found |= dict.fromkeys(("projections", "scores", "weighted_sum"), f"{family}: {why}")
    if family in CODEBOOKS:
        found["unembedding"] = f"{family}: its output is not one row over one vocabulary"
    return found


def _own_heads(reader: Reader) -> str | None:
    """Why some layers have projections or query heads of their own that are not read here; None where none has."""
    if reader.model_type == "nemotron-nas":
        blocks = reader.raw.get("block_configs") or []
        if any(block["attention"].get("replace_with_linear") for block in blocks):
            return "a linear map stands in for attention in some layers"
    if reader.model_type.startswith("gemma4") and reader.raw.get("attention_k_eq_v"):
        return "one projection serves as keys and values in its full layers"
    if reader.raw.get("num_attention_heads_per_layer") is not None:
        return "its layers have query heads of their own number"
    own = reader.raw.get("swa_num_attention_heads")
    if own is not None and own != reader.raw.get("num_attention_heads", reader.default("num_attention_heads")):
        return "its sliding layers have query heads of their own number"
    return None


def _latent(reader: Reader) -> dict[str, int | None]:
    """Ranks and widths of multi-head latent attention; no query rank means that queries are not compressed."""
    query = reader.raw.get("q_lora_rank", reader.defaults.get("q_lora_rank"))
    return {
        "query_rank": reader.whole("q_lora_rank", "width", least=0) if query is not None else None,
        "nope": reader.whole("qk_nope_head_dim", "width", least=0),
        "rope": reader.whole("qk_rope_head_dim", "width", fallback=0, least=0),
        "value": reader.whole("v_head_dim", "width"),
    }


def _reads(reader: Reader, layers: Sequence[Layer]) -> list[int | None]:
    """For each shared layer, in order, the layer whose entries it reads: the last of its kind that keeps its own."""
    first = next((index for index, layer in enumerate(layers) if layer.kind == "shared"), None)
    if first is None:
        return []
    silent = Reader(reader.raw, reader.model_type)
    kinds = layer_kinds(silent, len(layers), families.window(silent))
    last = {kind: index for index, kind in enumerate(kinds[:first])}
    return [last.get(kind) for kind in kinds[first:]]


def _embedding_width(reader: Reader, d_model: int, reasons: dict[str, str]) -> int:
    """The width of a row of the unembedding: the model's, unless the file has projections around it (opt)."""
    if reader.raw.get("word_embed_proj_dim") is None:
        return d_model
    width = reader.whole("word_embed_proj_dim", "width")
    if width != d_model:
        reasons["other"] = f"{reader.model_type}: projections between the embedding's width and the model's"
    return width


def _tied(reader: Reader) -> bool | None:
    """Whether the embedding and the unembedding are one matrix; None where a file around this one may say so."""
    nested = any(rule.fact == "language model" for rule in reader.rules)
    if reader.raw.get("tie_word_embeddings") is None and (nested or reader.default("tie_word_embeddings") is MISSING):
        return None
    return reader.flag("tie_word_embeddings", otherwise=True)
