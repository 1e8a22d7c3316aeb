"""Whether the pickles in a model file can run code of its author when SB3 reads them.

SB3 keeps what is no JSON as pickles: classes of policies and buffers, spaces, schedules. They are
read here first, by a reader that knows only classes of a kind that a model file needs. What names
anything else is refused, before SB3 reads it.
"""

from __future__ import annotations

import base64
import io
import pickle
from collections.abc import Iterable, Mapping
from typing import Any

from mvpi.errors import InputError
from mvpi.sb3._class_names import kinds_in

_PICKLED = ":serialized:"
_NAMES = {
    "builtins": {"bool", "bytearray", "complex", "dict", "float", "frozenset", "int", "list"}
    | {"range", "set", "slice", "str", "tuple"},
    "collections": {"OrderedDict", "deque"},
    "numpy": {"dtype", "ndarray", "float32", "float64", "int32", "int64", "uint8", "bool_"},
    "numpy.core.multiarray": {"_reconstruct", "scalar"},
    "numpy._core.multiarray": {"_reconstruct", "scalar"},
    "numpy.core.numeric": {"_frombuffer"},
    "numpy._core.numeric": {"_frombuffer"},
    "numpy.random._pickle": {"__bit_generator_ctor", "__generator_ctor", "__randomstate_ctor"},
    "numpy.random._pcg64": {"PCG64"},
    "numpy.random._mt19937": {"MT19937"},
    "numpy.random.bit_generator": {"SeedSequence", "__pyx_unpickle_SeedSequence"},
    "stable_baselines3.common.type_aliases": {"TrainFreq", "TrainFrequencyUnit"},
    "stable_baselines3.common.utils": {"ConstantSchedule", "FloatSchedule", "LinearSchedule"},
    "stable_baselines3.common.sb2_compat.rmsprop_tf_like": {"RMSpropTFLike"},
    # Files of version 0.1.
    str(__package__): {"EpisodeClock", "OffPolicyPlug", "OnPolicyPlug"},
    "mvpi.running": {"Augmenter", "RewardWindow"},
    "mvpi.augmenter": {"Augmenter", "RewardWindow"},
    "mvpi.advice": {"Advice"},
    "mvpi.augmenter.risk_warnings": {"Advice"},
}


class _Unknown(Exception):
    """Something that a model file does not need."""


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if name in _NAMES.get(module, ()):
            return super().find_class(module, name)
        kinds = kinds_in(module)
        if kinds and "." not in name:
            found = super().find_class(module, name)
            if isinstance(found, type) and issubclass(found, kinds):
                return found
        raise _Unknown(f"{module}.{name}")


def check_pickles(data: Mapping[str, Any], replaced: Iterable[str]) -> None:
    """`InputError` if an entry that is not `replaced` by the caller could run code when read."""
    for name, entry in data.items():
        if name in replaced or not (isinstance(entry, dict) and _PICKLED in entry):
            continue
        try:
            _Reader(io.BytesIO(base64.b64decode(entry[_PICKLED]))).load()
        except _Unknown as error:
            raise InputError(
                f"reading the entry {name!r} of the model file would use {error}, which can run "
                "code: if you trust its author, pass trusted=True"
            ) from None
        except Exception as error:
            raise InputError(f"the entry {name!r} of the model file is damaged: {error}") from error
