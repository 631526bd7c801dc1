"""An explicit-state model of the slot protocol (docs/protocol.md) and an exhaustive search through it.

Every reachable state is visited, under an adversary that loses, duplicates, delays and reorders packets
without bound: a contribution once sent may reach the switch at any later time, any number of times or
never; so may a result once emitted reach its rank.

Checked are
  safety: every sum that completes holds exactly one contribution of every rank, all of the same k;
  no hang: from every reachable state the ranks' own resends, delivered, lead to the end.

Left out: payloads (a sum is the set of its contributions), serial-number wrap-around, generations,
several jobs, timers (a resend may happen at any time), and packets longer in flight than the modelled run.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

EMPTY = -1


@dataclass(frozen=True)
class Model:
    """One configuration; the defaults of `credit` and `slots` are the protocol's."""

    ranks: int
    window: int
    packets: int
    """Stream indices 0 … packets - 1 that every rank sends."""
    credit: int | None = None
    """A rank may send k once it has the results of everything up to k - credit; default: the window."""
    slots: int | None = None
    """Slots of the stream; default: twice the window."""


class Slot(NamedTuple):
    """Switch state of one slot."""

    tag: int
    done: bool
    contributions: frozenset[tuple[int, int]]
    """(rank, k) of everything in the sum."""


class State(NamedTuple):
    """Everything that the future depends on."""

    sent: tuple[int, ...]
    """Per rank: how many stream indices it has sent."""
    received: tuple[int, ...]
    """Per rank: bitmap of the results it has."""
    emitted: tuple[int, ...]
    """Per rank: bitmap of the results that the switch ever sent to it."""
    slots: tuple[Slot, ...]


class WrongSumError(AssertionError):
    """A sum completed that is not one contribution of every rank for one k."""


class HangError(AssertionError):
    """A reachable state from which resends do not lead to the end."""


def initial(model: Model) -> State:
    slots = model.slots if model.slots is not None else 2 * model.window
    nothing = (0,) * model.ranks
    return State(nothing, nothing, nothing, (Slot(EMPTY, False, frozenset()),) * slots)


def finished(model: Model, state: State) -> bool:
    """Whether every rank has every result."""
    return all(bits == (1 << model.packets) - 1 for bits in state.received)


def may_send(model: Model, state: State, rank: int) -> bool:
    """Host rule: k only after the results of everything up to k - W."""
    k = state.sent[rank]
    credit = model.credit if model.credit is not None else model.window
    due = (1 << max(0, k - credit + 1)) - 1
    return k < model.packets and state.received[rank] & due == due


def replace(values: tuple[int, ...], index: int, value: int) -> tuple[int, ...]:
    return (*values[:index], value, *values[index + 1 :])


def contribute(model: Model, state: State, rank: int, k: int) -> tuple[State, bool]:
    """The switch gets (rank, k).  Returns its new state and whether `rank` is sent the result.

    Raises:
        WrongSumError: the packet completes a wrong sum.
    """
    index = k % len(state.slots)
    slot = state.slots[index]
    if slot.tag > k:  # stale
        return state, False
    if slot.tag < k:  # first contribution: overwrite
        slot = Slot(k, False, frozenset({(rank, k)}))
    elif any(r == rank for r, _ in slot.contributions):  # duplicate: answered when done
        if not slot.done:
            return state, False
        emitted = replace(state.emitted, rank, state.emitted[rank] | 1 << k)
        return state._replace(emitted=emitted), True
    else:
        slot = slot._replace(contributions=slot.contributions | {(rank, k)})
    emitted = state.emitted
    completed = len(slot.contributions) == model.ranks
    if completed:
        slot = slot._replace(done=True)
        if slot.contributions != {(r, k) for r in range(model.ranks)}:
            raise WrongSumError(f"sum of k={k} holds {sorted(slot.contributions)}")
        emitted = tuple(bits | 1 << k for bits in emitted)
    slots = (*state.slots[:index], slot, *state.slots[index + 1 :])
    return state._replace(emitted=emitted, slots=slots), completed


def receive(state: State, rank: int, k: int) -> State:
    return state._replace(received=replace(state.received, rank, state.received[rank] | 1 << k))


def send(model: Model, state: State, rank: int) -> State:
    return state._replace(sent=replace(state.sent, rank, state.sent[rank] + 1))


def adversary_steps(model: Model, state: State) -> Iterator[State]:
    """Everything that can happen next, deliveries of old copies included."""
    for rank in range(model.ranks):
        if may_send(model, state, rank):
            yield send(model, state, rank)
        for k in range(state.sent[rank]):
            yield contribute(model, state, rank, k)[0]
        for k in range(model.packets):
            if state.emitted[rank] >> k & 1 and not state.received[rank] >> k & 1:
                yield receive(state, rank, k)


def fair_steps(model: Model, state: State) -> Iterator[State]:
    """What happens without the network's malice: a rank sends, or resends what it has no result of;
    the packet arrives and so does the answer, if there is one."""
    for rank in range(model.ranks):
        if may_send(model, state, rank):
            yield send(model, state, rank)
        for k in range(state.sent[rank]):
            if not state.received[rank] >> k & 1:
                after, answered = contribute(model, state, rank, k)
                yield receive(after, rank, k) if answered else after


def explore(model: Model, limit: int = 2_000_000) -> int:
    """Visits every reachable state; returns their number.

    Raises:
        WrongSumError, HangError: the protocol fails in this configuration.
        MemoryError: more than `limit` states.
    """
    start = initial(model)
    seen = {start}
    frontier = [start]
    predecessors: dict[State, list[State]] = {}
    while frontier:
        state = frontier.pop()
        for after in fair_steps(model, state):
            if after != state:
                predecessors.setdefault(after, []).append(state)
        for after in adversary_steps(model, state):
            if after not in seen:
                seen.add(after)
                frontier.append(after)
        if len(seen) > limit:
            raise MemoryError(f"more than {limit} states for {model}")
    good = [state for state in seen if finished(model, state)]
    leads_to_end = set(good)
    while good:
        for before in predecessors.get(good.pop(), ()):
            if before not in leads_to_end:
                leads_to_end.add(before)
                good.append(before)
    stuck = seen - leads_to_end
    if stuck:
        raise HangError(f"{len(stuck)} of {len(seen)} states cannot finish, e.g. {min(stuck)}")
    return len(seen)
