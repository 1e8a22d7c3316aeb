"""Ways to damage bytes, and to keep an attack from running for ever."""

from __future__ import annotations

import random
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

Mutation = Callable[[bytes, random.Random], bytes]

_NUMBERS = (
    *("nan", "-inf", "Infinity", "1e400", "-1", "0", "1e-400", "null", "true", '"x"', "[]"),
    *("9" * 5_000, "1" + "0" * 400, str(2**63), str(2**31), "1e308", "0x10", "-0.0"),
)


def flip(data: bytes, rng: random.Random) -> bytes:
    """One bit is another one."""
    changed = bytearray(data)
    if changed:
        changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def flips(data: bytes, rng: random.Random) -> bytes:
    """Some bytes are other ones."""
    changed = bytearray(data)
    for _ in range(rng.randint(2, 20) if data else 0):
        changed[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(changed)


def truncate(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))] if data else data


def append(data: bytes, rng: random.Random) -> bytes:
    return data + rng.randbytes(rng.randint(1, 100))


def zero(data: bytes, rng: random.Random) -> bytes:
    """A stretch of zeros, as a disk leaves that was not written to in time."""
    start = rng.randrange(len(data) + 1)
    end = min(len(data), start + rng.choice([1, 16, 512, 4096]))
    return data[:start] + bytes(end - start) + data[end:]


def cut(data: bytes, rng: random.Random) -> bytes:
    """A stretch is missing."""
    start = rng.randrange(len(data) + 1)
    return data[:start] + data[start + rng.randint(1, 64) :]


def insert(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.randbytes(rng.randint(1, 64)) + data[at:]


def repeat(data: bytes, rng: random.Random) -> bytes:
    """A stretch is there twice."""
    start = rng.randrange(len(data) + 1)
    end = min(len(data), start + rng.randint(1, 200))
    return data[:end] + data[start:]


def number(data: bytes, rng: random.Random) -> bytes:
    """A number in a text is another one, or none."""
    found = list(re.finditer(rb"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?", data[:100_000]))
    if not found:
        return flips(data, rng)
    where = rng.choice(found)
    return data[: where.start()] + rng.choice(_NUMBERS).encode() + data[where.end() :]


def start_of(mutation: Mutation, size: int) -> Mutation:
    """The mutation in the first bytes only: those of headers."""

    def mutate(data: bytes, rng: random.Random) -> bytes:
        return mutation(data[:size], rng) + data[size:]

    mutate.__name__ = f"{mutation.__name__} of the first {size}"
    return mutate


DAMAGES: tuple[Mutation, ...] = (flip, flips, truncate, append, zero, cut, insert, repeat)
"""What disks, copies and editors do."""
MUTATIONS: tuple[Mutation, ...] = (
    *DAMAGES,
    number,
    *(start_of(mutation, 200) for mutation in (flip, flips, insert, number)),
)
"""What somebody does who means harm."""


class Hang(BaseException):
    """It took too long."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raise `Hang` after that time. Generous: machines are busy, and hangs are for ever."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
