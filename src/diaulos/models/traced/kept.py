"""What a segment keeps for its backward where kernels are fused.

Autograd keeps what each single kernel wants. A compiler, or a fused kernel, keeps no tensor that
memory-bound work makes again from others that are kept: the cheapest set of tensors from which
all wanted ones follow is a minimum cut between what only products can make and what is wanted
(as in torch's own partitioner of graphs; Ford and Fulkerson, 1956, in Edmonds' and Karp's form).
"""

from collections import deque
from collections.abc import Iterable
from itertools import pairwise

from diaulos.models.traced.tape import Step, Tape

_END = -1
_START = -2

Node = tuple[int, bool]
"""A tensor by key; its near or its far side."""


def kept_tensors(tape: Tape) -> frozenset[int]:
    """The keys of the tensors that are kept, parameters excepted."""
    needed, own = _needed_by_products(tape), _own(tape)
    wanted = (tape.saved - needed) & own
    makers = _makers(tape)
    network = _Network()
    pending, seen = sorted(wanted), set(wanted)
    for key in pending:
        network.join((key, True), (_END, False))
    while pending:
        key = pending.pop()
        size = tape.sizes[key] if key in own - needed else 0.0
        network.join((key, False), (key, True), size)
        maker = makers.get(key)
        if maker is None:
            network.join((_START, True), (key, False))
            continue
        for some in maker.reads:
            if some.key in tape.parameters or some.key == key:
                continue
            network.join((some.key, True), (key, False))
            if some.key not in seen:
                seen.add(some.key)
                pending.append(some.key)
    return needed | (network.cut() & own)


def _own(tape: Tape) -> frozenset[int]:
    """What the segment makes, and the hidden state; what else it gets is kept where it was made."""
    made = {some.key for step in tape.forward for some in step.writes}
    return frozenset(made | set(tape.inputs[:1]))


def _needed_by_products(tape: Tape) -> frozenset[int]:
    """What is kept as an input of a product, or as an input or the output of attention."""
    found: set[int] = set()
    for step in tape.forward:
        if step.moves_memory:
            continue
        ends: Iterable[int] = (some.key for some in step.reads)
        found.update(ends)
        if step.attention is not None:
            found.update(some.key for some in step.writes)
    return frozenset(found & tape.saved & _own(tape))


def _makers(tape: Tape) -> dict[int, Step]:
    """The kernel that made a tensor, where it can run again; kernels that change it are joined."""
    made: dict[int, Step] = {}
    barred: set[int] = set()
    for step in tape.forward:
        for some in step.writes:
            if not step.moves_memory or not step.repeatable or some.key in made:
                barred.add(some.key)  # also what is changed in place
            made[some.key] = step
    return {key: step for key, step in made.items() if key not in barred}


class _Network:
    """Capacities between nodes; those that are not stated have no bound."""

    def __init__(self) -> None:
        self._room: dict[Node, dict[Node, float]] = {}

    def join(self, source: Node, target: Node, capacity: float = float("inf")) -> None:
        """Let so much flow from one node to another."""
        self._room.setdefault(source, {})[target] = capacity
        self._room.setdefault(target, {}).setdefault(source, 0.0)

    def cut(self) -> frozenset[int]:
        """The tensors of the smallest cut, those nearest to the start where several are."""
        while (path := self._path()) is not None:
            ways = list(pairwise(path))
            flow = min(self._room[source][target] for source, target in ways)
            for source, target in ways:
                self._room[source][target] -= flow
                self._room[target][source] += flow
        reached = set(self._reached())
        return frozenset(
            key for key, far in self._room if not far and (key, False) in reached
            and (key, True) not in reached and self._room[key, False]
        )  # fmt: skip

    def _path(self) -> list[Node] | None:
        came = self._reached()
        node: Node = (_END, False)
        if node not in came:
            return None
        path = [node]
        while node != (_START, True):
            node = came[node]
            path.append(node)
        return path[::-1]

    def _reached(self) -> dict[Node, Node]:
        """All nodes that the start still gets to, each with the one before it."""
        start: Node = (_START, True)
        came = {start: start}
        waiting = deque([start])
        while waiting:
            node = waiting.popleft()
            for further, room in self._room.get(node, {}).items():
                if room > 0 and further not in came:
                    came[further] = node
                    waiting.append(further)
        return came
