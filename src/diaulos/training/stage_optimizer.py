"""The optimizer of one stage: makes the next weights from the newest ones and the gradients.

Where weights are computed with and updated in the same numbers, the optimizer steps on the next
version itself, after the newest one is copied there: there is one copy of the weights for each
version and no more. In low precision it steps on masters, of the newest version alone, from which
the next version is rounded.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

OptimizerFactory = Callable[[list[nn.Parameter]], Optimizer]
"""Builds an optimizer over parameters, such as `partial(torch.optim.AdamW, lr=1e-3)`."""


class StageOptimizer:
    """Steps on those weights of a stage that this replica updates."""

    def __init__(
        self,
        weights: Sequence[nn.Parameter],
        updated: Sequence[int],
        make_optimizer: OptimizerFactory,
        dtype: torch.dtype,
    ) -> None:
        """Begin with these weights, of which those at the places `updated` are this replica's.

        `dtype` is what is updated in.
        """
        self.updated = updated
        own = [weights[place] for place in updated]
        self._has_masters = any(weight.dtype is not dtype for weight in own)
        if self._has_masters:
            own = [nn.Parameter(weight.detach().to(dtype)) for weight in own]
        self._stepped = own
        """What the optimizer steps on, in the order of `updated`."""
        # Torch's optimizers refuse to have nothing to do.
        self._optimizer = make_optimizer(own) if own else None
        self._learning_rate = self._optimizer.param_groups[0]["lr"] if self._optimizer else 0.0

    @property
    def masters(self) -> Sequence[Tensor] | None:
        """The newest weights in full, in the order of `updated`; None where none are apart."""
        return self._stepped if self._has_masters else None

    def step(
        self,
        source: Sequence[nn.Parameter],
        target: Sequence[nn.Parameter],
        gradients: Sequence[Tensor],
        *,
        learning_rate_share: float,
    ) -> None:
        """Write the next version of this replica's weights to the target; the source is the newest.

        They may be the same.
        """
        if self._optimizer is None:
            return
        if not self._has_masters:
            self.move(source, target)
        for parameter, place in zip(self._stepped, self.updated, strict=True):
            parameter.grad = gradients[place]
        (group,) = self._optimizer.param_groups
        group["lr"] = self._learning_rate * learning_rate_share
        self._optimizer.step()
        for parameter in self._stepped:
            parameter.grad = None
        if self._has_masters:
            _copy([target[place] for place in self.updated], self._stepped)

    def move(self, source: Sequence[nn.Parameter], target: Sequence[nn.Parameter]) -> None:
        """Copy this replica's weights, and let the optimizer go on with the copies."""
        if self._has_masters or self._optimizer is None or source is target:
            return
        self._stepped = [target[place] for place in self.updated]
        _copy(self._stepped, [source[place] for place in self.updated])
        (group,) = self._optimizer.param_groups
        group["params"] = self._stepped
        state = self._optimizer.state
        for place, new in zip(self.updated, self._stepped, strict=True):
            if source[place] in state:
                state[new] = state.pop(source[place])

    def state(self) -> dict[int, dict[str, Tensor]]:
        """The optimizer's tensors, by the place of their weight; before the first step none."""
        if self._optimizer is None:
            return {}
        state = self._optimizer.state
        pairs = zip(self.updated, self._stepped, strict=True)
        return {place: dict(state[weight]) for place, weight in pairs if weight in state}

    def restore(self, place: int, state: Mapping[str, Tensor], master: Tensor | None) -> None:
        """Go on from the tensors that `state` gave for a weight of this replica, and its master."""
        assert self._optimizer is not None
        weight = self._stepped[list(self.updated).index(place)]
        self._optimizer.state[weight] = dict(state)
        if master is not None:
            _copy([weight], [master])


def _copy(target: Sequence[Tensor], source: Sequence[Tensor]) -> None:
    if target:
        with torch.no_grad():
            torch._foreach_copy_([*target], [*source])
