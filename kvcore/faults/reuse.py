"""A stored prefix used where it does not belong, or with its last token fed once more."""

from __future__ import annotations

from kvcore.faults.fault import Fault
from kvcore.prefix import ReuseRules, common_prefix


def _one_past_the_edit(stored: tuple[int, ...], wanted: list[int]) -> int:
    n_common = common_prefix(stored, wanted)
    return n_common + 1 if n_common < len(stored) else n_common


FAULTS = (
    Fault(
        "prefix_reused_past_an_edit",
        "C7",
        "The entry of the first token that differs is used too.",
        wrong="reuse m + 1 tokens after an edit at m",
        right="reuse m tokens",
        reported=("claude-code-local issue 46", "lucebox issue 216"),
        hidden_by="prefixes that do not differ",
        reuse=ReuseRules(common=_one_past_the_edit),
        shown_by="reuse",
    ),
    Fault(
        "prefix_key_without_tokens",
        "C7",
        "A stored prefix is taken for the one asked for without a look at its tokens.",
        wrong="reuse whatever is stored",
        right="reuse the longest common prefix",
        reported=("vllm-project/vllm PR 12621", "vllm-project/vllm issue 3264"),
        hidden_by="prefixes that do not differ",
        reuse=ReuseRules(common=lambda stored, wanted: len(stored)),
        shown_by="reuse",
    ),
    Fault(
        "last_token_fed_twice",
        "C7",
        "On an exact repeat the last token runs again behind a cache that already holds it.",
        wrong="reuse all T tokens, then feed token T − 1",
        right="reuse at most T − 1",
        reported=("mlxcel issue 1760", "Rapid-MLX PR 1124"),
        hidden_by="requests longer than what is stored",
        reuse=ReuseRules(least_anew=0),
        shown_by="reuse",
    ),
)
