"""Seconds of a layer, forward and backward, by what they are spent on."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class PassSeconds:
    """One way through a layer, or through many."""

    compute: float = 0.0
    tensor: float = 0.0
    """Exchanges of the tensor-parallel group that nothing hides."""
    context: float = 0.0
    """The same of the context-parallel group."""
    expert: float = 0.0
    """The same of the expert-parallel group."""

    def __add__(self, other: "PassSeconds") -> "PassSeconds":
        return PassSeconds(
            compute=self.compute + other.compute,
            tensor=self.tensor + other.tensor,
            context=self.context + other.context,
            expert=self.expert + other.expert,
        )

    def __mul__(self, times: float) -> "PassSeconds":
        return PassSeconds(
            compute=self.compute * times,
            tensor=self.tensor * times,
            context=self.context * times,
            expert=self.expert * times,
        )

    @property
    def total(self) -> float:
        """All of it."""
        return self.compute + self.tensor + self.context + self.expert


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSeconds:
    """One microbatch through a layer."""

    forward: PassSeconds
    backward: PassSeconds
    """With what is computed again."""
    weight_backward: float
    """The part of the backward that makes the gradients of weights."""
    again: PassSeconds = PassSeconds()
    """The part of the backward that computes again what was not kept."""
    recomputed_flops: float = 0.0
    """Of the whole layer, which MFU does not count and HFU does."""

    def __add__(self, other: "LayerSeconds") -> "LayerSeconds":
        return LayerSeconds(
            forward=self.forward + other.forward,
            backward=self.backward + other.backward,
            weight_backward=self.weight_backward + other.weight_backward,
            again=self.again + other.again,
            recomputed_flops=self.recomputed_flops + other.recomputed_flops,
        )

    def __mul__(self, times: float) -> "LayerSeconds":
        return LayerSeconds(
            forward=self.forward * times,
            backward=self.backward * times,
            weight_backward=self.weight_backward * times,
            again=self.again * times,
            recomputed_flops=self.recomputed_flops * times,
        )

    @property
    def total(self) -> float:
        """Forward and backward."""
        return self.forward.total + self.backward.total

    def with_halves_apart(self) -> "LayerSeconds":
        """Where the halves of the backward run at different times: each computes it all again."""
        return replace(
            self,
            backward=self.backward + self.again,
            weight_backward=self.weight_backward + self.again.total,
            recomputed_flops=2 * self.recomputed_flops,
        )


NO_SECONDS = LayerSeconds(forward=PassSeconds(), backward=PassSeconds(), weight_backward=0.0)
"""Of no layer."""
