"""The summary of an environment: what risk aversion changed there, in a few sentences."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from mvpi.report.agent_statistics import Comparison, Estimates
from mvpi.report.formatting import MINUS, change, counted, listed, number
from mvpi.report.grouping import AgentRuns, Section, differences
from mvpi.report.range_block import range_sentence

_MOST_SENTENCES = 3
_MOST_NAMES = 5


def summary(comparison: Comparison) -> str:
    """A paragraph: how risk aversion changed mean and deviation, and how certain that is."""
    judged, ranges = comparison.section.judged, comparison.section.ranges
    sentences = _of_judged(comparison) if judged else []
    sentences += [range_sentence(agent) for agent in ranges[:_MOST_SENTENCES]]
    return " ".join(sentences) or "No run was evaluated yet; there are learning curves only."


def _of_judged(comparison: Comparison) -> list[str]:
    judged = comparison.section.judged
    seeds = [len(agent.runs) for agent in judged]
    episodes = [len(outcome.returns) for agent in judged for outcome in agent.outcomes]
    each = " each" if len(judged) > 1 else ""
    size = f"{counted([len(judged)], 'agent')} with {counted(seeds, 'seed')}{each}"
    sentences = [
        f"{size}, judged by {counted(episodes, 'final episode')} per seed.",
        *_compared(comparison),
    ]
    if len(judged) > 1:
        sentences.append(_frontier(comparison))
    if min(seeds) == 1:
        sentences.append(
            "With one seed the intervals cover the variation of episodes, not that of training."
        )
    return sentences


def _compared(comparison: Comparison) -> list[str]:
    """Risk-averse agents against the risk-neutral one of their algorithm."""
    section = comparison.section
    averse = [agent for agent in section.judged if not agent.neutral]
    if not averse:
        return ["There is no risk-averse agent among them."]
    pairs = [
        _Pair(agent, base, comparison.estimates[agent.key], comparison.estimates[base.key])
        for agent in averse
        if (base := section.baseline(agent)) is not None
    ]
    paired = {pair.agent.key for pair in pairs}
    unclear = [a for a in averse if a.key not in paired and section.neutral_agents(a)]
    if unclear:
        why = "there are several risk-neutral agents of the same algorithm, all with other settings"
        return [*_findings(pairs), f"Not compared: {_named(unclear)}; {why} or steps."]
    return _findings(pairs) or [
        "There is no risk-neutral agent of the same algorithm to compare with."
    ]


def _findings(pairs: Collection[_Pair]) -> list[str]:
    """A sentence for every pair, or counts if there are many."""
    if len(pairs) <= _MOST_SENTENCES:
        return [pair.sentence for pair in pairs]
    steadiest = min(pairs, key=lambda pair: pair.ours["deviation"].value)
    spread, cost = _lowered(pairs, "deviation"), _lowered(pairs, "mean")
    unlike = sum(bool(differences(pair.base, pair.agent)) for pair in pairs)
    other = f", {unlike} of them one of other settings or steps" if unlike else ""
    size = f"{len(pairs)} of them are risk-averse"
    return [
        f"{size} and have a risk-neutral agent to compare with{other}.",
        f"{spread} of these lowered the standard deviation of the return and {cost} the mean.",
        f"The steadiest: {steadiest.sentence[0].lower()}{steadiest.sentence[1:]}",
    ]


def unlike_baselines(section: Section) -> list[str]:
    """A sentence for every agent whose baseline differs from it in more than the risk."""
    return [
        f"{agent.label} is compared with {base.label} although they differ: {unlike}."
        for agent in section.judged
        if (base := section.baseline(agent)) is not None
        if (unlike := differences(base, agent))
    ]


@dataclass(frozen=True)
class _Pair:
    """A risk-averse agent, the risk-neutral one of its algorithm, and the numbers of both."""

    agent: AgentRuns
    base: AgentRuns
    ours: Estimates
    theirs: Estimates

    @property
    def sentence(self) -> str:
        spread = self._effect("deviation", "the standard deviation of the return")
        cost = self._effect("mean", "its mean")
        unlike = differences(self.base, self.agent)
        base = f"{self.base.label} ({unlike})" if unlike else self.base.label
        return f"Against {base}, {self.agent.label} {spread} and {cost}; {self._caution()}."

    def _effect(self, name: str, noun: str) -> str:
        before, after = self.theirs[name].value, self.ours[name].value
        moved = change(before, after)
        if moved == "0%" or number(after) == number(before):
            return f"left {noun} unchanged ({number(before)})"
        verb = "lowered" if after < before else "raised"
        share = moved.lstrip(f"+{MINUS}")
        span = f"from {number(before)} to {number(after)}"
        return f"{verb} {noun} by {share} ({span})" if share else f"{verb} {noun} {span}"

    def _caution(self) -> str:
        """What the intervals allow to be said."""
        deviation, mean = (
            self.ours[name].overlaps(self.theirs[name]) for name in ("deviation", "mean")
        )
        if deviation and mean:
            return "both pairs of 95% intervals overlap, so the data do not distinguish the two"
        if not deviation and not mean:
            return "neither pair of 95% intervals overlaps"
        sure, unsure = ("mean", "deviation") if deviation else ("deviation", "mean")
        return (
            f"the 95% intervals of the {sure} do not overlap, those of the {unsure} do, so the "
            f"difference in the {unsure} may be chance"
        )


def _lowered(pairs: Collection[_Pair], name: str) -> str:
    """How many lowered a statistic, and how many of them without overlap of the intervals."""
    did = [pair for pair in pairs if pair.ours[name].value < pair.theirs[name].value]
    sure = [pair for pair in did if not pair.ours[name].overlaps(pair.theirs[name])]
    return f"{len(did)} ({len(sure)} without overlap of the 95% intervals)"


def _frontier(comparison: Comparison) -> str:
    best = comparison.frontier
    if len(best) == 1:
        return f"{best[0].label} has the highest mean and the lowest deviation of all."
    which = _named(best)
    return f"On the efficient frontier, beaten by no other agent in mean and deviation: {which}."


def _named(agents: Collection[AgentRuns]) -> str:
    """Their labels, or only how many they are."""
    if len(agents) > _MOST_NAMES:
        return f"{len(agents)} of the agents"
    return listed([agent.label for agent in agents])
