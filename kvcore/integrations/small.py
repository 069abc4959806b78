"""A small random-weight model of the architecture that a configuration file names: same rules, tiny sizes.

Kept: the ratio of query to KV heads, the kind of every layer in one period of their pattern, which layers have
positions, the position scheme and how much of a head it turns, one shared KV head, and the part experts play. Shrunk:
widths, vocabulary, layers, experts, and windows, so that a window ends within the first tokens.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kvcore.integrations.layer_choice import chosen_layers
from kvcore.integrations.shrink import counts, refuse_absurd, sizes
from kvcore.integrations.transformers import library, sentence

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

STANDARD_DEVIATION = 0.2
"""The default initialisation hides real faults: one state-space hybrid is off by 1e-5 with it and by 5 without."""
MEANS = {"recurrent_param": -4.0}
"""Where zero would leave nothing to remember: the decay of a gated linear recurrence is then about 0.93 a token."""
ATTENTION = ("eager", "sdpa")
DTYPES = ("float32", "float64", "bfloat16", "float16")

_IGNORED = {"architectures", "auto_map", "dtype", "torch_dtype", "transformers_version", "quantization_config",
            "attn_implementation", "_attn_implementation", "_experts_implementation"}  # fmt: skip


def small_config(config: Mapping) -> PreTrainedConfig:
    """The shrunk configuration of the language model that a config.json's dict describes; a nested one is resolved.

    Raises ValueError, in one sentence, for anything that is no such dict or that the installed version refuses.
    """
    text = _language_model_config(config)
    raw = {name: value for name, value in text.to_dict().items() if name in _settable(text)}
    if text.is_encoder_decoder:
        raise ValueError(f"model_type {text.model_type!r} is an encoder and a decoder; give a decoder-only model")
    try:
        shrunk = sizes(raw, text.attribute_map) | counts(raw) | chosen_layers(raw, text)
        return type(text)(**(raw | shrunk))
    except Exception as error:
        raise ValueError(f"no small {text.model_type!r} can be made of this config: {sentence(error)}") from error


def small_model(config: Mapping, attention: str = "eager", seed: int = 0, dtype: str = "float32") -> PreTrainedModel:
    """A model of `small_config(config)` whose weights are drawn from `seed`, in evaluation mode, on the CPU.

    Every weight but the norms' is normal with standard deviation 0.2. Raises ValueError as `small_config` does, and
    where the architecture has no such attention.
    """
    if attention not in ATTENTION:
        raise ValueError(f"attention {attention!r} is unknown; choose one of {', '.join(ATTENTION)}")
    if dtype not in DTYPES:
        raise ValueError(f"dtype {dtype!r} is unknown; choose one of {', '.join(DTYPES)}")
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise ValueError(f"seed {seed!r} must be a whole number from 0 up to 2^63 − 1")
    small, transformers = small_config(config), library()
    # Grouped matrix products of experts refuse float64.
    experts = {"experts_implementation": "eager"} if dtype == "float64" else {}
    try:
        with library("torch").random.fork_rng(devices=[]):  # the library's own start is drawn over
            model = transformers.AutoModelForCausalLM.from_config(
                small, attn_implementation=attention, dtype=dtype, **experts
            )
    except Exception as error:
        raise ValueError(f"no {small.model_type!r} with {attention} attention: {sentence(error)}") from error
    _draw_weights(model, seed)
    return model.eval()


def _draw_weights(model: PreTrainedModel, seed: int) -> None:
    """Drawn in float64 and in the order of names, so that a dtype changes rounding only."""
    torch = library("torch")
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            if _is_norm(name):
                continue
            drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(MEANS.get(name.split(".")[-1], 0.0) + STANDARD_DEVIATION * drawn)


def _is_norm(name: str) -> bool:
    return any("norm" in part or part.startswith("ln_") for part in name.lower().split("."))


def _language_model_config(config: Mapping) -> PreTrainedConfig:
    """The library's own reading of the dict, down to the text model of a nested one."""
    if not isinstance(config, Mapping):
        raise ValueError(f"a config is the dict of a config.json, not {type(config).__name__}")
    transformers = library()
    known = transformers.CONFIG_MAPPING
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in known:
        raise ValueError(
            f"model_type is {model_type!r}; give one of the {len(known.keys())} that transformers "
            f"{transformers.__version__} knows, such as llama, gpt2 or mamba"
        )
    given = {name: value for name, value in config.items() if name not in _IGNORED and name != "model_type"}
    nested = given.get("text_config")
    for part in (given, nested if isinstance(nested, Mapping) else {}):
        refuse_absurd(part)
    try:
        text = known[model_type](**given).get_text_config(decoder=True)
    except Exception as error:
        raise ValueError(f"transformers refuses this {model_type!r} config: {sentence(error)}") from error
    if type(text) not in transformers.MODEL_FOR_CAUSAL_LM_MAPPING:
        raise ValueError(f"model_type {model_type!r} has no causal language model in transformers")
    return text


def _settable(text: PreTrainedConfig) -> set[str]:
    """Names that may be given: what a class works out from others would go stale."""
    if not dataclasses.is_dataclass(text):
        return set(text.to_dict()) - _IGNORED - {"model_type"}
    fields = {field.name for field in dataclasses.fields(text)} | set(text.attribute_map.values())
    if getattr(text, "kv_lora_rank", None) is None:
        fields |= {"head_dim"}  # some take it without declaring it; latent attention works it out
    return fields - _IGNORED - {"model_type"}
