"""The optimizer of one stage: makes the next weights from the newest ones and the gradients.

Where weights are computed with and updated in the same numbers, the optimizer steps on the next
version itself, after the newest one is copied there: there is one copy of the weights for each
version and no more. In low precision it steps on masters, of the newest version alone, from which
the next version is rounded; also where versions are predictions of what weights will be.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

OptimizerFactory = Callable[[list[tuple[str, nn.Parameter]]], Optimizer]
"""Builds an optimizer over parameters with their full names, as all of torch's take them, such as
`partial(torch.optim.AdamW, lr=1e-3)`."""


class StageOptimizer:
    """Steps on those weights of a stage that this replica updates."""

    def __init__(
        self,
        weights: Sequence[nn.Parameter],
        updated: Sequence[int],
        make_optimizer: OptimizerFactory,
        dtype: torch.dtype,
        *,
        names: Sequence[str] | None = None,
        with_masters: bool = False,
    ) -> None:
        """Begin with these weights, of which those at the places `updated` are this replica's.

        `dtype` is what is updated in; `names` are those of the weights, None for their places.
        Masters are kept where numbers differ, or where they are asked for.
        """
        self.updated = updated
        own = [weights[place] for place in updated]
        self._has_masters = with_masters or any(weight.dtype is not dtype for weight in own)
        if self._has_masters:
            own = [nn.Parameter(weight.detach().to(dtype, copy=True)) for weight in own]
        self._stepped = own
        """What the optimizer steps on, in the order of `updated`."""
        # Torch's optimizers refuse to have nothing to do.
        called = [str(place) if names is None else names[place] for place in updated]
        self._optimizer = make_optimizer(list(zip(called, own, strict=True))) if own else None
        groups = self._optimizer.param_groups if self._optimizer else ()
        self._learning_rates = [group["lr"] for group in groups]

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
        predict: bool = False,
    ) -> None:
        """Write the next version of this replica's weights to the target; the source is the newest.

        They may be the same. To predict is to write the weights after another such step, w + (w -
        w before); it needs masters.
        """
        if self._optimizer is None:
            return
        if not self._has_masters:
            self.move(source, target)
        for parameter, place in zip(self._stepped, self.updated, strict=True):
            parameter.grad = gradients[place]
        for group, rate in zip(self._optimizer.param_groups, self._learning_rates, strict=True):
            group["lr"] = rate * learning_rate_share
        before = [weight.detach().clone() for weight in self._stepped] if predict else None
        self._optimizer.step()
        for parameter in self._stepped:
            parameter.grad = None
        self.settle(target, before)

    def settle(self, target: Sequence[nn.Parameter], before: list[Tensor] | None = None) -> None:
        """Write the masters there, or what they will be if they go on as since `before`."""
        if not self._has_masters:
            return
        if before is not None:  # becomes w + (w - before)
            with torch.no_grad():
                torch._foreach_neg_(before)
                torch._foreach_add_(before, [*self._stepped])
                torch._foreach_add_(before, [*self._stepped])
        own = self._stepped if before is None else before
        _copy([target[place] for place in self.updated], own)

    def move(self, source: Sequence[nn.Parameter], target: Sequence[nn.Parameter]) -> None:
        """Copy this replica's weights, and let the optimizer go on with the copies."""
        if self._has_masters or self._optimizer is None or source is target:
            return
        self._stepped = [target[place] for place in self.updated]
        _copy(self._stepped, [source[place] for place in self.updated])
        new_of = dict(zip((source[place] for place in self.updated), self._stepped, strict=True))
        for group in self._optimizer.param_groups:
            group["params"] = [new_of[weight] for weight in group["params"]]
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
