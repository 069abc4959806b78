"""The faults of the bench, by name: small deviations from the rules of a right step."""

from kvcore.faults import (
    eviction,
    layers,
    lengths,
    masks,
    positions,
    reuse,
    rollback,
    rotation,
    sharing,
    storage,
    windows,
)
from kvcore.faults.fault import Fault

FAULTS: dict[str, Fault] = {
    fault.name: fault
    for module in (masks, layers, positions, lengths, windows, reuse, rollback, storage, eviction, rotation, sharing)
    for fault in module.FAULTS
}
"""In the order of their classes as far as the files go; names are unique."""

__all__ = ["FAULTS", "Fault"]
