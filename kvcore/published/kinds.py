"""Which layer is of which kind: from the file's own list, else by the rule of its family."""

from __future__ import annotations

from kvcore.published.kind_names import NAMES, checked
from kvcore.published.patterns import FAMILIES
from kvcore.published.reader import Reader, short, whole_number

LETTERS = {"S": "sliding", "L": "sliding", "F": "full", "G": "full", "C": "chunked", "R": "recurrent"}


def layer_kinds(reader: Reader, n_layers: int, window: int | None) -> list[str]:
    """The kind of each layer. Raises ValueError for lists of another length and for unknown names."""
    for key in ("layer_types", "layers_block_type"):
        name = reader.name_in_file(key)
        if name is not None and reader.raw[name] is not None:
            return checked(name, reader.listed(key), n_layers)
    family = FAMILIES.get(reader.model_type)
    if family is not None:
        return family(reader, n_layers, window)
    period = _period_in_file(reader)
    if period is not None:
        return [period[index % len(period)] for index in range(n_layers)]
    if reader.layer_kinds == []:
        raise ValueError(f"layer_types is not in the file; {reader.model_type} needs it, one entry a layer")
    if reader.layer_kinds is not None:
        unread = [name for name in reader.layer_kinds if name not in NAMES]
        if unread:
            raise ValueError(
                f"layer_types is not in the file, and {reader.model_type} assumes {unread[0]}, which is not read here;"
                " give layer_types, one entry a layer"
            )
        named = [NAMES[name] for name in reader.layer_kinds]
        shown = ", ".join(reader.layer_kinds) if len(named) < 9 else f"a period of {len(named)}"
        why = f"layer_types is not in the file; {reader.model_type} repeats: {shown}"
        reader.told("layer kinds", named if len(set(named)) > 1 else named[0], "absent", why)
        return [named[index % len(named)] for index in range(n_layers)]
    if window is not None:
        reader.told(
            "layer kinds", "sliding", "derived", f"a window of {window:,} in the configuration, for every layer"
        )
        return ["sliding"] * n_layers
    reader.told("layer kinds", "full", "derived", "no window in the configuration")
    return ["full"] * n_layers


def _period_in_file(reader: Reader) -> list[str] | None:
    """One period from sliding_window_pattern (every n-th layer is full, or letters), or None."""
    for key in ("sliding_window_pattern", "_sliding_window_pattern"):
        if reader.raw.get(key) is None:
            continue
        value = reader.get(key, "layer kinds")
        if isinstance(value, str):
            if not value or set(value) - LETTERS.keys():
                raise ValueError(f"{key} is {short(value)}; letters may be {', '.join(LETTERS)}")
            return [LETTERS[letter] for letter in value]
        every = whole_number(key, value, "layers")
        return ["sliding"] * (every - 1) + ["full"]
    return None
