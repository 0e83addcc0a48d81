"""The weight versions of a stage: which are alive, where they are, and how the next is made.

Version v is what the weights are after v updates. It lives in bank v mod n, n being the number of
versions that the schedule keeps of the stage: 1 with a flush, d - r under PipeDream, 2 for 2BW:

    forward and backward of batch t   read version max(t-1, 0)      bank (t-1) mod 2
    update t reads version t          and the gradients of batch t  bank  t    mod 2
             writes version t+1       over version t-1              bank (t+1) mod 2

When update t runs, nothing that used version t-1 is in flight any more, so its bank is free.
A bank is a copy of the stage's module: the autograd graph of each microbatch points at the copy
that its forward used, so its backward, recomputation included, cannot see other weights.
"""

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from diaulos.errors import CheckError
from diaulos.training.accumulation import Accumulator
from diaulos.training.precision import Precision
from diaulos.training.sharding import own_parameter, part_of
from diaulos.training.stage import StageModule
from diaulos.training.stage_optimizer import OptimizerFactory, StageOptimizer


@dataclass(frozen=True, slots=True)
class Lease:
    """The right of one microbatch to compute with a version, from its forward to its backward."""

    version: int
    module: StageModule


class WeightVersions:
    """The weights of one stage in the versions that a schedule keeps, and their optimizer."""

    def __init__(
        self,
        module: StageModule,
        kept: int,
        make_optimizer: OptimizerFactory,
        *,
        precision: Precision = Precision.FLOAT32,
        updated: Sequence[int] | None = None,
        extrapolated: bool = False,
    ) -> None:
        """Begin with version 0; `updated` are the places of the weights updated here, None for all.

        Those of others are to be copied into the newest version after each update. Extrapolated
        versions are predictions: what is updated is kept apart.
        """
        self._extrapolated = extrapolated
        self._banks = [module, *(_copy(module) for _ in range(kept - 1))]
        computing = [bank.trained() for bank in self._banks]
        self._parameters = [list(map(own_parameter, weights)) for weights in computing]
        """Of what this rank holds of each, on the same storage as those that compute."""
        self._gradients = [Accumulator(weights, precision) for weights in computing]
        self._leases: Counter[int] = Counter()
        self.newest = 0
        self.peak_alive = 1
        """The most versions that were newest or leased at a time."""
        self.names = [name for name, _ in module.named_weights()]
        self.parts = dict(zip(self.names, map(part_of, computing[0]), strict=True))
        """Which part of each parameter this rank holds."""
        self.shapes = {name: tuple(weight.shape) for name, weight in module.named_weights()}
        """The shapes of the whole parameters."""
        places = range(len(self.names)) if updated is None else updated
        self.optimizer = StageOptimizer(
            self._parameters[0],
            places,
            make_optimizer,
            precision.updating,
            names=self.names,
            with_masters=extrapolated,
        )

    @property
    def kept(self) -> int:
        """How many banks there are."""
        return len(self._banks)

    @property
    def alive(self) -> range:
        """The versions that are there, the newest last."""
        return range(max(self.newest - self.kept + 1, 0), self.newest + 1)

    def module(self, version: int) -> StageModule:
        """The module that holds a version which is alive."""
        return self._banks[version % self.kept]

    def restart(self, updates: int) -> None:
        """Count from these updates on; weights and the optimizer's state are to be given."""
        newest = self._parameters[self.newest % self.kept]
        self.newest = updates
        self.optimizer.move(newest, self._parameters[updates % self.kept])

    def lease(self, version: int) -> Lease:
        """The module that holds a version, kept from being overwritten until it is released."""
        if version not in self.alive:
            raise CheckError(
                f"version {version} of the weights is not alive; the newest is {self.newest} and "
                f"{self.kept} are kept"
            )
        self._leases[version] += 1
        self.peak_alive = max(self.peak_alive, len({*+self._leases, self.newest}))
        return Lease(version, self.module(version))

    def release(self, lease: Lease) -> None:
        """Give a lease back after its backward."""
        self._leases[lease.version] -= 1

    def take_gradients(self, version: int) -> list[Tensor]:
        """The gradients accumulated on a version, which has none afterwards.

        They are those of what this rank holds; all shards of a replica call it. Raises
        `CheckError` naming the parameters that have none: training would silently leave them as
        they are.
        """
        gradients = self._gradients[version % self.kept].take()
        missing = [
            name for name, gradient in zip(self.names, gradients, strict=True) if gradient is None
        ]
        if missing:
            raise CheckError(f"no gradient reached {', '.join(missing[:10])}")
        return [gradient for gradient in gradients if gradient is not None]

    def update(
        self,
        gradients: Sequence[Tensor],
        *,
        learning_rate_share: float = 1.0,
        predict: bool = False,
    ) -> None:
        """Make the next version from the newest one and the gradients given.

        To predict is to write what the weights will be after another such update.
        """
        source, target = self._next_banks()
        self.optimizer.step(
            source, target, gradients, learning_rate_share=learning_rate_share, predict=predict
        )
        self.newest += 1

    def skip(self) -> None:
        """Make a next version that is as the newest one."""
        source, target = self._next_banks()
        if self.kept > 1 and target:
            with torch.no_grad():
                torch._foreach_copy_([*target], [*source])
            self.optimizer.move(source, target)
            if self._extrapolated:
                self.optimizer.settle(target)
        self.newest += 1

    def settle(self, share: Callable[[Sequence[nn.Parameter]], None]) -> None:
        """Replace a prediction by the newest weights themselves; nothing may be in flight.

        `share` gives other replicas what is updated here, and takes theirs.
        """
        newest = self.newest_weights()
        self.optimizer.settle(newest)
        share(newest)

    @contextmanager
    def settled(self, share: Callable[[Sequence[nn.Parameter]], None]) -> Iterator[None]:
        """The newest weights themselves meanwhile, and then the prediction again."""
        if not self._extrapolated:
            yield
            return
        newest = self.newest_weights()
        predicted = [weight.detach().clone() for weight in newest]
        self.settle(share)
        yield
        if newest:
            with torch.no_grad():
                torch._foreach_copy_([*newest], predicted)

    def _next_banks(self) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
        """The newest version and where the next one goes, which nothing may use any more."""
        self._check_free(self.newest + 1 - self.kept)
        source = self._parameters[self.newest % self.kept]
        return source, self._parameters[(self.newest + 1) % self.kept]

    def newest_weights(self) -> list[nn.Parameter]:
        """What this rank holds of the newest version."""
        return self._parameters[self.newest % self.kept]

    def named(self, version: int) -> Iterator[tuple[str, nn.Parameter]]:
        """What this rank holds of a version that is alive, by the names in the whole model."""
        yield from zip(self.names, self._parameters[version % self.kept], strict=True)

    def optimizer_state(self) -> dict[str, dict[str, Tensor]]:
        """The optimizer's tensors of the weights updated here, by parameter name."""
        return {self.names[place]: state for place, state in self.optimizer.state().items()}

    def masters(self) -> dict[str, Tensor]:
        """The newest weights in full of those updated here, where they are kept apart."""
        masters = self.optimizer.masters
        if masters is None:
            return {}
        pairs = zip(self.optimizer.updated, masters, strict=True)
        return {self.names[place]: master.detach() for place, master in pairs}

    @property
    def updated_names(self) -> list[str]:
        """The weights that are updated here."""
        return [self.names[place] for place in self.optimizer.updated]

    def restore(self, name: str, state: Mapping[str, Tensor], master: Tensor | None) -> None:
        """Go on from what `optimizer_state` and `masters` gave of a weight that is updated here."""
        self.optimizer.restore(self.names.index(name), state, master)

    def _check_free(self, replaced: int) -> None:
        if self.kept > 1 and self._leases[replaced]:
            raise CheckError(
                f"update {self.newest} would replace version {replaced}, which "
                f"{self._leases[replaced]} microbatches in flight still use"
            )


def _copy(module: StageModule) -> StageModule:
    """A copy of a module, on the same frozen weights."""
    return copy.deepcopy(module, {id(weight): weight for weight in module.frozen()})
