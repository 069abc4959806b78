"""Number formats of keys and values, and the bytes of a row in each."""

from __future__ import annotations

from typing import NamedTuple


class Format(NamedTuple):
    """`block_bytes` for every `block` numbers; a row takes whole blocks."""

    block: int
    block_bytes: int
    sentence: str

    def row_bytes(self, width: int) -> int:
        """Bytes of a row of `width` numbers."""
        return -(-width // self.block) * self.block_bytes


FORMATS = {
    "f32": Format(1, 4, "4 bytes a number"),
    "bf16": Format(1, 2, "2 bytes a number"),
    "f16": Format(1, 2, "2 bytes a number"),
    "fp8": Format(1, 1, "1 byte a number, scales not counted"),
    "int8": Format(1, 1, "1 byte a number, scales not counted"),
    "int4": Format(2, 1, "2 numbers a byte, scales not counted"),
    "q8_0": Format(32, 34, "34 bytes for 32 numbers: 32 of 8 bits and a scale of 16"),
    "q4_0": Format(32, 18, "18 bytes for 32 numbers: 32 of 4 bits and a scale of 16"),
}
"""By name; a row is one head's key or value of one token."""

STATE_FORMATS = ("f32", "bf16", "f16")
"""Formats in which a recurrent state is kept too; with the others it stays in bf16."""
