"""The faults of the bench, by name: small deviations from the rules of a right step."""

from kvcore.faults import layers, masks, positions, reuse, rollback, rotation, storage, windows
from kvcore.faults.fault import Fault

FAULTS: dict[str, Fault] = {
    fault.name: fault
    for module in (masks, layers, positions, windows, reuse, rollback, storage, rotation)
    for fault in module.FAULTS
}
"""In the order of their classes as far as the files go; names are unique."""

__all__ = ["FAULTS", "Fault"]
