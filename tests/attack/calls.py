"""Malformed calls of every public name: each must raise one `InputError` of one line, and warn of
nothing.

A call is made with good arguments but for one, which is one of `values.VALUES`; or with one
argument too few or too many, which Python itself refuses. Calls are made in a process of their own:
one that ends it, or does not come back, is found out as well.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent)]

from process import serve, survived  # noqa: E402 - the path comes first
from tally import Tally  # noqa: E402
from targets import targets  # noqa: E402
from values import VALUES  # noqa: E402

COUNT = 500


def run(count: int, seed: int) -> Tally:
    """`count` malformed calls; every name and every value in turn, in an order set by `seed`."""
    tally = Tally("malformed calls")
    for line, (outcome, what) in survived(__file__, count, seed):
        if outcome in ("refused", "refused by Python"):
            tally.add(outcome)
        else:
            tally.fail(outcome, f"{line}: {what}")
    return tally


def attacks(count: int, seed: int) -> list[str]:
    """`count` attacks as texts: all of them are not more than some thousands."""
    every = [" | ".join(attack) for target in targets().values() for attack in target.attacks()]
    random.Random(seed).shuffle(every)
    return [every[i % len(every)] for i in range(count)]


def attack(line: str) -> tuple[str, str]:
    """What a malformed call led to, in a word, and what it said."""
    import warnings

    from mvpi import InputError

    name, argument, value = line.split(" | ")
    target = targets()[name]
    given = dict(target.good)
    given[argument or "no_such_argument"] = VALUES[value]() if argument else 1
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            answer = target.call(**given)
    except InputError as error:
        message = str(error)
        fine = message and "\n" not in message and "\r" not in message and len(message) < 1000
        return ("refused" if fine else "more than a line"), message
    except TypeError as error:
        by_python = not argument and "no_such_argument" in str(error)
        return ("refused by Python" if by_python else "another exception"), repr(error)
    except Warning as warning:
        return "a warning", repr(warning)
    except Exception as error:  # noqa: BLE001 - this is what is looked for
        return "another exception", repr(error)
    return "accepted", repr(answer)


if __name__ == "__main__":
    serve(attacks, attack)
