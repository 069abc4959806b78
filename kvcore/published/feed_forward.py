"""What the feed-forward of each layer is: its width, its matrices, its experts, and which layers have which.

Read from the configuration by the rules of transformers 5.24's own models. A family whose form is not known
here gives None and a sentence, never a guess.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kvcore.published.layer import Layer
from kvcore.published.mixtures import MIXTURES, Experts, experts, n_experts
from kvcore.published.reader import Reader, short, whole_number
from kvcore.published.widths import dense_widths

PLAIN = (
    "gpt2", "gpt_neo", "gptj", "gpt_neox", "gpt_neox_japanese", "gpt_bigcode", "codegen", "opt", "bloom", "falcon",
    "mpt", "phi", "phi-msft", "starcoder2", "persimmon", "biogpt", "xglm", "ctrl", "openai-gpt", "nemotron",
    "nemotron_h", "apertus", "apertus1p5_text", "arcee", "cosmos3_edge_text", "jais2", "nanochat", "blip_text_model",
    "kosmos_2_text_model", "kosmos_2_5_text_model", "musicgen_decoder", "musicgen_melody_decoder",
    "pp_formulanet_text",
)  # fmt: skip
"""Families with two matrices, up and down; the others have a third that gates."""

FOREIGN = ("chatglm", "qwen", "phi-msft", "nemotron-nas")
"""Families unknown to transformers whose form is known all the same."""

BARE = ("zamba", "mamba", "mamba2", "falcon_mamba")
"""Families whose recurrent layers have no feed-forward."""

_EXPERTS = "its experts have a form that is not read here"
_BESIDE = "its layers have further paths beside the feed-forward"

UNLIKE = {
    "rwkv": "its channel mixing has another form",
    "xlstm": "its width follows from a factor and a rounding that are not read here",
    "muse_spark_text": "its experts work on a narrower width with projections around them",
    "longcat_flash": "each layer has two dense ones and a mixture with experts that do nothing",
    "zamba2": "its feed-forward is shared by layers, with adapters",
    "zaya": "its router is a network of its own",
    "deepseek_v4": "its first layers choose experts by a table",
    "hunyuan_v1_moe": "its file may give experts layer by layer in ways that are not read here",
    "ernie4_5_vl_moe_text": "its text and its images have experts of different widths",
    "step3p5": "its layers choose between forms that are not read here",
    "blt": "it is made of several decoders",
    "udop": "it is made of an encoder and a decoder",
    "evolla": "its decoder has further blocks between the layers",
    "pi0": "it is made of two decoders",
    "hrm_text": "it runs its layers more than once a token",
    "pix2struct_text_model": "its feed-forward is not read here",
    "diffusion_gemma_text": "its feed-forward is not read here",
    **dict.fromkeys(("inkling_text", "inkling2_text", "inkling2_loop_text", "jetmoe", "unlimited_ocr_text"), _EXPERTS),
    **dict.fromkeys(("muse_glimmer_text", "glm5_next_text", "hy_v4", "hy_v4_vl_text", "axk2"), _BESIDE),
}
"""Families whose feed-forward is not of the form below, and why."""


@dataclass(frozen=True)
class FeedForward:
    """One layer's: `matrices` of d_model × width; each expert and the shared one have as many matrices.

    A token goes through `active` of `experts`; the router multiplies d_model × `router` numbers: one an expert,
    and one more where the shared expert has a gate. All zero: the layer has no feed-forward.
    """

    matrices: int = 0
    width: int = 0
    experts: int = 0
    active: int = 0
    expert_width: int = 0
    shared_width: int = 0
    router: int = 0

    def weights(self, d_model: int) -> int:
        """Multiply-adds of one token: matrices · d · (width + active · expert width + shared width) + d · router."""
        return self._weights(d_model, self.active)

    def all_weights(self, d_model: int) -> int:
        """Weights of all matrices, every expert's among them."""
        return self._weights(d_model, self.experts)

    def _weights(self, d_model: int, n_experts: int) -> int:
        width = self.width + n_experts * self.expert_width + self.shared_width
        return d_model * (self.matrices * width + self.router)


NONE = FeedForward()


def to_shapes(forms: Sequence[FeedForward]) -> dict[str, Any]:
    """As plain data: the distinct forms, and which of them each layer has."""
    distinct = list(dict.fromkeys(forms))
    return {"forms": [asdict(form) for form in distinct], "of_layer": [distinct.index(form) for form in forms]}


def from_shapes(shapes: dict[str, Any]) -> list[FeedForward]:
    """The form of each layer, from what to_shapes gave."""
    forms = [FeedForward(**form) for form in shapes["forms"]]
    return [forms[index] for index in shapes["of_layer"]]


def feed_forward(reader: Reader, layers: Sequence[Layer], d_model: int) -> tuple[list[FeedForward] | None, str | None]:
    """(one entry a layer, None), or (None, the reason). Raises ValueError for values that are not allowed."""
    name = reader.model_type or "this file"
    if reader.model_type in UNLIKE:
        return None, f"{name}: {UNLIKE[reader.model_type]}"
    if not reader.known and reader.model_type not in FOREIGN:
        return None, f"{name} is not known, so neither is how many matrices its feed-forward has"
    if reader.raw.get("enable_moe_block") or reader.raw.get("is_moe") or reader.raw.get("moe_latent_size"):
        return None, f"{name}: a mixture of this form is not read here"
    own = OWN.get(reader.model_type, _by_rule)
    found = own(reader, layers, d_model)
    if found is None:
        return (
            None,
            f"{name}: the file and the family's defaults give no width, or no experts of which so many can be active",
        )
    matrices = " or ".join(str(each) for each in sorted({form.matrices for form in found if form != NONE})) or "no"
    reader.told("feed-forward", f"{matrices} matrices", "derived", "three with a gate, two without, as the family has")
    return found, None


def _by_rule(reader: Reader, layers: Sequence[Layer], d_model: int) -> list[FeedForward] | None:
    bare = reader.model_type in BARE
    if bare and all(layer.kind == "recurrent" for layer in layers):
        return [NONE] * len(layers)
    matrices = 2 if reader.model_type in PLAIN else 3
    mixture = MIXTURES.get(reader.model_type)
    count = (n_experts(reader) if mixture else 0) or 0
    if mixture and mixture.shared == "shared_intermediate_size" and not count:
        width = reader.whole(mixture.shared, "width")
        return width and [FeedForward(matrices, width)] * len(layers)
    every = {*range(len(layers))}
    dense = mixture.dense(reader, len(layers)) & every if count else every
    found = experts(reader, mixture, count) if dense != every else Experts(0, 0, 0, 0, 0)
    key = mixture.dense_width if mixture else "intermediate_size"
    widths = dense_widths(reader, len(layers), d_model, key) if dense else []
    if found is None or widths is None:
        return None
    if reader.raw.get("use_double_wide_mlp"):
        widths = [width * (1 + (layer.kind == "shared")) for width, layer in zip(widths, layers, strict=True)]
    sparse = _sparse(matrices, found)
    forms = [FeedForward(matrices, widths[index]) if index in dense else sparse for index in range(len(layers))]
    return [NONE if bare and layer.kind == "recurrent" else form for layer, form in zip(layers, forms, strict=True)]


def _sparse(matrices: int, found: Experts) -> FeedForward:
    return FeedForward(matrices, 0, found.n_experts, found.active, found.width, found.shared_width, found.router)


def _dbrx(reader: Reader, layers: Sequence[Layer], d_model: int) -> list[FeedForward] | None:
    """ffn_config; absent keys as DbrxFFNConfig has them."""
    given = reader.raw.get("ffn_config") or {}
    if not isinstance(given, dict):
        raise ValueError(f"ffn_config is {short(given)}; it must be a JSON object")
    defaults = {"ffn_hidden_size": (3584, "width"), "moe_num_experts": (4, "heads"), "moe_top_k": (1, "heads")}
    width, count, active = (
        whole_number(f"ffn_config.{key}", given.get(key, default), kind) for key, (default, kind) in defaults.items()
    )
    if active > count:
        return None
    return [_sparse(3, Experts(count, active, width, 0, count))] * len(layers)


def _nemotron_h(reader: Reader, layers: Sequence[Layer], d_model: int) -> list[FeedForward] | None:
    """A layer is a mixer or a feed-forward, as its letter or its name says."""
    listed = reader.raw.get("layer_types") or reader.raw.get("layers_block_type")
    letters = listed and [{"mlp": "-", "moe": "E"}.get(each) for each in listed]
    letters = letters or reader.raw.get("hybrid_override_pattern") or "ME*-" * len(layers)
    dense = FeedForward(2, reader.whole("intermediate_size", "width")) if "-" in letters else NONE
    count = n_experts(reader) if "E" in letters else 0
    found = experts(reader, MIXTURES["nemotron_h"], count) if count else Experts(0, 0, 0, 0, 0)
    return found and [{"-": dense, "E": _sparse(2, found)}.get(letter, NONE) for letter in letters[: len(layers)]]


def _nemotron_nas(reader: Reader, layers: Sequence[Layer], d_model: int) -> list[FeedForward] | None:
    """block_configs: ffn_mult · 2/3 · d rounded up to 256, a linear map instead, or nothing (DeciLM's own code)."""
    found = []
    for index, block in enumerate(reader.listed("block_configs") or []):
        ffn = block.get("ffn") if isinstance(block, dict) else None
        if not isinstance(ffn, dict):
            return None
        multiple = ffn.get("ffn_mult")
        if ffn.get("no_op"):
            found.append(NONE)
        elif ffn.get("replace_with_linear"):
            found.append(FeedForward(1, d_model))
        elif multiple is None:
            return None
        elif isinstance(multiple, bool) or not isinstance(multiple, int | float) or not 0 < multiple <= 1_000:
            raise ValueError(f"block_configs[{index}].ffn.ffn_mult is {short(multiple)}; it must be above 0, to 1,000")
        else:
            found.append(FeedForward(3, 256 * -(-int(2 * multiple * d_model / 3) // 256)))
    return found or None


OWN = {"dbrx": _dbrx, "nemotron_h": _nemotron_h, "nemotron-nas": _nemotron_nas}
"""Families whose layers say it themselves."""
