"""KV Cache Lab's engine. Names load when first used, so that `audit` never imports PyTorch."""

from importlib import import_module

_HOME = {
    "DecoderConfig": "config",
    "KVCache": "cache",
    "LabDecoder": "model",
    "LayerCache": "cache",
    "Mask": "masks",
    "Protocol": "protocol",
    "Rules": "rules",
    "Setting": "setting",
    "verify": "verification.verify",
}

__all__ = list(_HOME)


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module 'kvcore' has no attribute {name!r}")
    return getattr(import_module(f"kvcore.{_HOME[name]}"), name)
