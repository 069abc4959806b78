"""Published architectures as the part of their config.json that decides what a cache must hold.

Head counts, windows, layer patterns and positions are those of the named model; a key that is missing has the default
of transformers, which is the published value or one that `kvcore.integrations.shrink` replaces.
"""

from __future__ import annotations


def _config(model_type: str, hidden: int, layers: int, heads: int, kv_heads: int | None = None, **more) -> dict:
    """A config.json in the names that most model types share."""
    shared = {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads}
    own = {} if kv_heads is None else {"num_key_value_heads": kv_heads}
    return {"model_type": model_type, **shared, **own, **more}


def _rope(theta: float, **more) -> dict:
    return {"rope_type": "default", "rope_theta": theta, **more}


def _pattern(letters: str, layers: int) -> list[str]:
    """One period of layer kinds, repeated and cut: S sliding, F full, C chunked, L linear."""
    kinds = {"S": "sliding_attention", "F": "full_attention", "C": "chunked_attention", "L": "linear_attention"}
    return [kinds[letters[index % len(letters)]] for index in range(layers)]


_LONG_ROPE = {"rope_type": "longrope", "rope_theta": 10_000.0, "short_factor": [1.0] * 48, "long_factor": [1.05] * 48}
_YARN_GPT_OSS = {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
                 "original_max_position_embeddings": 4096, "rope_theta": 150_000.0}  # fmt: skip
_YARN_DEEPSEEK = {"rope_type": "yarn", "factor": 40.0, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0,
                  "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096, "rope_theta": 10_000.0}  # fmt: skip
_LLAMA3_ROPE = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192, "rope_theta": 500_000.0}  # fmt: skip

_DENSE = {
    "Llama 2 7B": _config("llama", 4096, 32, 32, 32, max_position_embeddings=4096),
    "Llama 3.1 8B": _config("llama", 4096, 32, 32, 8, max_position_embeddings=131072, rope_parameters=_LLAMA3_ROPE),
    "Mistral 7B v0.1": _config("mistral", 4096, 32, 32, 8, sliding_window=4096, max_position_embeddings=32768),
    "Qwen 2.5 7B": _config("qwen2", 3584, 28, 28, 4, use_sliding_window=False, sliding_window=131072),
    "Qwen 2 with its window on": _config(
        "qwen2", 3584, 28, 28, 4, use_sliding_window=True, sliding_window=4096, max_window_layers=14
    ),
    "Qwen 3 0.6B": _config("qwen3", 1024, 28, 16, 8, head_dim=128, rope_parameters=_rope(1e6)),
    "Gemma 7B": _config("gemma", 3072, 28, 16, 16, head_dim=256),
    "Gemma 2 9B": _config("gemma2", 3584, 42, 16, 8, head_dim=256, sliding_window=4096, query_pre_attn_scalar=256),
    "Gemma 3 4B": {
        "model_type": "gemma3",
        "text_config": _config("gemma3_text", 2560, 34, 8, 4, head_dim=256, sliding_window=1024),
    },
    "Gemma 3 1B": _config("gemma3_text", 1152, 26, 4, 1, head_dim=256, sliding_window=512),
    "Phi-3 mini 4k": _config("phi3", 3072, 32, 32, 32, sliding_window=2047, max_position_embeddings=4096),
    "Phi-3 mini 128k": _config(
        "phi3", 3072, 32, 32, 32, sliding_window=262144, max_position_embeddings=131072, rope_parameters=_LONG_ROPE
    ),
    "GPT-2": {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024},
    "GPT-NeoX 20B": _config("gpt_neox", 6144, 44, 64, rope_parameters=_rope(1e4, partial_rotary_factor=0.25)),
    "GPT-J 6B": {"model_type": "gptj", "n_embd": 4096, "n_layer": 28, "n_head": 16, "rotary_dim": 64},
    "GPT-Neo 1.3B": {
        "model_type": "gpt_neo", "hidden_size": 2048, "num_layers": 24, "num_heads": 16, "window_size": 256,
        "attention_types": [[["global", "local"], 12]],
    },
    "GPT-BigCode (StarCoder)": {
        "model_type": "gpt_bigcode", "n_embd": 6144, "n_layer": 40, "n_head": 48, "multi_query": True,
    },
    "CodeGen 350M": {"model_type": "codegen", "n_embd": 1024, "n_layer": 20, "n_head": 16, "rotary_dim": 32},
    "Falcon 7B": _config("falcon", 4544, 32, 71, multi_query=True, new_decoder_architecture=False, parallel_attn=True),
    "Falcon 40B": _config("falcon", 8192, 60, 128, num_kv_heads=8, new_decoder_architecture=True),
    "Falcon RW 1B": _config("falcon", 2048, 24, 32, alibi=True, multi_query=False, parallel_attn=False, bias=True),
    "Bloom 7B": {"model_type": "bloom", "hidden_size": 4096, "n_layer": 30, "n_head": 32},
    "MPT 7B": {"model_type": "mpt", "d_model": 4096, "n_layers": 32, "n_heads": 32, "max_seq_len": 2048},
    "OPT 13B": _config("opt", 5120, 40, 40, ffn_dim=20480, word_embed_proj_dim=5120),
    "OLMo 2 7B": _config("olmo2", 4096, 32, 32, 32, rope_parameters=_rope(5e5)),
    "OLMo 3 7B": _config("olmo3", 4096, 32, 32, 32, sliding_window=4096, max_position_embeddings=65536),
    "Command R 08-2024": _config("cohere", 8192, 40, 64, 8, rope_parameters=_rope(4e6)),
    "Cohere 2 (Command R7B)": _config("cohere2", 4096, 32, 32, 8, sliding_window=4096),
    "StarCoder 2 3B": _config("starcoder2", 3072, 30, 24, 2, sliding_window=4096, max_position_embeddings=16384),
    "Phi-2": _config("phi", 2560, 32, 32, 32, rope_parameters=_rope(1e4, partial_rotary_factor=0.4)),
    "StableLM 2 1.6B": _config("stablelm", 2048, 24, 32, 32, rope_parameters=_rope(1e4, partial_rotary_factor=0.25)),
    "Granite 3 8B": _config(
        "granite", 4096, 40, 32, 8, attention_multiplier=0.0078125, residual_multiplier=0.22, embedding_multiplier=12.0,
        logits_scaling=16.0,
    ),
    "Nemotron 4 15B": _config("nemotron", 6144, 32, 48, 8, rope_parameters=_rope(1e4, partial_rotary_factor=0.5)),
    "GLM-4 9B": _config("glm", 4096, 40, 32, 2, head_dim=128, rope_parameters=_rope(1e4, partial_rotary_factor=0.5)),
    "SmolLM 3 3B": _config("smollm3", 2048, 36, 16, 4, no_rope_layer_interval=4, rope_parameters=_rope(5e6)),
    "EXAONE 4 32B": _config("exaone4", 5120, 64, 40, 8, sliding_window=4096, max_position_embeddings=131072),
}  # fmt: skip

_MIXTURES = {
    "Mixtral 8x7B": _config(
        "mixtral", 4096, 32, 32, 8, num_local_experts=8, num_experts_per_tok=2, sliding_window=None
    ),
    "Qwen 3 MoE 30B-A3B": _config(
        "qwen3_moe", 2048, 48, 32, 4, head_dim=128, num_experts=128, num_experts_per_tok=8, moe_intermediate_size=768
    ),
    "OLMoE 1B-7B": _config("olmoe", 2048, 16, 16, 16, num_experts=64, num_experts_per_tok=8),
    "Phi-3.5 MoE": _config(
        "phimoe", 4096, 32, 32, 8, num_local_experts=16, num_experts_per_tok=2, sliding_window=131072
    ),
    "Llama 4 Scout": {
        "model_type": "llama4",
        "text_config": _config(
            "llama4_text", 5120, 48, 40, 8, head_dim=128, attention_chunk_size=8192, no_rope_layer_interval=4,
            num_local_experts=16, num_experts_per_tok=1, interleave_moe_layer_step=1, rope_parameters=_rope(5e5),
        ),
    },
    "DeepSeek-V2 Lite": _config(
        "deepseek_v2", 2048, 27, 16, 16, kv_lora_rank=512, q_lora_rank=None, qk_rope_head_dim=64, qk_nope_head_dim=128,
        v_head_dim=128, n_routed_experts=64, num_experts_per_tok=6, first_k_dense_replace=1,
    ),
    "DeepSeek-V3": _config(
        "deepseek_v3", 7168, 61, 128, 128, kv_lora_rank=512, q_lora_rank=1536, qk_rope_head_dim=64,
        qk_nope_head_dim=128, v_head_dim=128, n_routed_experts=256, num_experts_per_tok=8, n_group=8, topk_group=4,
        first_k_dense_replace=3, max_position_embeddings=163840, rope_parameters=_YARN_DEEPSEEK,
    ),
    "gpt-oss 20b": _config(
        "gpt_oss", 2880, 24, 64, 8, head_dim=64, sliding_window=128, num_local_experts=32, num_experts_per_tok=4,
        layer_types=_pattern("SF", 24), rope_parameters=_YARN_GPT_OSS,
    ),
}  # fmt: skip

_RECURRENT = {
    "Mamba 130M": {"model_type": "mamba", "hidden_size": 768, "num_hidden_layers": 24, "state_size": 16},
    "Falcon Mamba 7B": {"model_type": "falcon_mamba", "hidden_size": 4096, "num_hidden_layers": 64, "state_size": 16},
    "Mamba 2 2.7B": {
        "model_type": "mamba2", "hidden_size": 2560, "num_hidden_layers": 64, "num_heads": 80, "head_dim": 64,
        "state_size": 128, "n_groups": 1,
    },
    "Jamba v0.1": _config("jamba", 4096, 32, 32, 8, attn_layer_period=8, attn_layer_offset=4),
    "Bamba 9B": _config("bamba", 4096, 32, 32, 8, attn_layer_indices=[9, 18, 27], mamba_n_heads=128, mamba_d_state=128),
    "Zamba 7B": _config("zamba", 3712, 76, 16, 16),
    "Zamba 2 2.7B": _config("zamba2", 2560, 54, 32, 32, n_mamba_heads=80),
    "Falcon H1 1.5B": _config(
        "falcon_h1", 2048, 24, 8, 2, mamba_d_ssm=3072, mamba_n_heads=48, mamba_d_head=64
    ),
    "Granite 4 hybrid": _config("granitemoehybrid", 1536, 40, 12, 4, layer_types=_pattern("LLLLLFLLLL", 40)),
    "RecurrentGemma 2B": _config(
        "recurrent_gemma", 2560, 26, 10, 1, lru_width=2560, attention_window_size=2048,
        block_types=["recurrent", "recurrent", "attention"],
    ),
    "Qwen 3 Next 80B-A3B": _config(
        "qwen3_next", 2048, 48, 16, 2, head_dim=256, layer_types=_pattern("LLLF", 48), num_experts=512,
        num_experts_per_tok=10,
    ),
    "Qwen 3.5 27B": {
        "model_type": "qwen3_5",
        "text_config": _config("qwen3_5_text", 5120, 64, 24, 4, head_dim=256, layer_types=_pattern("LLLF", 64)),
    },
    "LFM 2 1.2B": _config("lfm2", 2048, 16, 32, 8, full_attn_idxs=[2, 5, 8, 10, 12, 14]),
    "MiniMax Text 01": _config("minimax", 6144, 80, 64, 8, head_dim=128, layer_types=_pattern("L" * 7 + "F", 80)),
    "Nemotron-H 8B": _config(
        "nemotron_h", 4096, 52, 32, 8,
        hybrid_override_pattern="M-M-M-M*-" + 3 * "M-M-M-M-M*-" + "M-M-M-M-M-",
    ),
    "Kimi Linear 48B-A3B": _config("kimi_linear", 2304, 27, 32, 32),
    "OLMo Hybrid 7B": _config("olmo_hybrid", 3840, 32, 30, 30),
}  # fmt: skip

ARCHITECTURES: dict[str, dict] = _DENSE | _MIXTURES | _RECURRENT
