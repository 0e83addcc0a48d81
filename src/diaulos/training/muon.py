"""Muon for matrices and AdamW for the rest, as one optimizer with one state."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.nn import Parameter
from torch.optim import Optimizer


class MuonWithAdamW(Optimizer):
    """Steps on matrices with Muon and on all other parameters with AdamW.

    Muon makes the steps of a matrix orthogonal, so that it needs the whole of it.
    """

    def __init__(
        self,
        parameters: Sequence[tuple[str, Parameter]],
        *,
        layers_of_adamw: Sequence[str],
        muon: Mapping[str, Any],
        adamw: Mapping[str, Any],
    ) -> None:
        """`parameters` have full names; of the layers named, AdamW steps on matrices as well.

        `muon` and `adamw` are the options of torch's optimizers.
        """
        matrices: list[tuple[str, Parameter]] = []
        others: list[tuple[str, Parameter]] = []
        for name, parameter in parameters:
            is_other = any(name.startswith(layer + ".") for layer in layers_of_adamw)
            (matrices if parameter.ndim == 2 and not is_other else others).append((name, parameter))
        super().__init__([parameter for _, parameter in parameters], {})
        self._parts: list[Optimizer] = []
        if matrices:
            self._parts.append(torch.optim.Muon(matrices, **muon))
        if others:
            self._parts.append(torch.optim.AdamW(others, **adamw))
        for part in self._parts:
            part.state = self.state
        self.param_groups = [group for part in self._parts for group in part.param_groups]

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Step on all parameters."""
        assert closure is None
        for part in self._parts:
            part.step()
