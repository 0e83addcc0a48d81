"""Any module with example inputs as a model: what it computes, by shape alone."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from diaulos.errors import InputError
from diaulos.models.factories import find_factory, input_tensors, module_with_inputs
from diaulos.models.operations import ModelOperations, Workload
from diaulos.models.traced.assembly import Assembly, assembled
from diaulos.models.traced.blocks import find_blocks
from diaulos.models.traced.layers import SplitPlan
from diaulos.models.traced.recorder import Recorder
from diaulos.models.traced.tracer import element_dtype, trace, without_data

_NO_DENSE_EXPERTS = (1, 1, 1)


def made_module(reference: str) -> "TracedModule":
    """What `module:factory` makes on the meta device: a module with a tuple of example inputs."""
    factory = find_factory(reference)
    with torch.device("meta"):
        module, arguments = module_with_inputs(reference, factory())
    return TracedModule(module, arguments, reference)


class TracedModule:
    """A `diaulos.models.operations.Model` of a module with arguments for some samples.

    Tensors with as many samples as the first one are taken with as many as a workload has. The
    first one's second dimension is the sequence where it is of whole numbers, or has three.
    """

    def __init__(self, module: nn.Module, arguments: tuple[Any, ...], name: str) -> None:
        self.name = name
        self._module = nn.Sequential(*module) if isinstance(module, nn.ModuleList) else module
        self._module.to("meta").train()
        self._names: dict[Tensor, str] = {
            some: name for name, some in self._module.named_parameters()
        }
        self._arguments = arguments
        first = input_tensors(arguments)[0]
        self._samples = first.shape[0]
        has_sequence = first.dim() == (3 if first.is_floating_point() else 2)
        self._length = first.shape[1] if has_sequence else 1

    def __call__(self, workload: Workload) -> ModelOperations:
        """All layers for one microbatch."""
        if workload.sequence_length != self._length:
            raise InputError(
                f"sequence_length is {workload.sequence_length}",
                f"the example inputs of {self.name} are sequences of {self._length}",
                f"take {self._length}, or other inputs",
            )
        self._module.to(dtype=element_dtype(workload))
        recorder = Recorder(self._names, _NO_DENSE_EXPERTS)
        blocks = find_blocks(self._module, frozenset(), (nn.ModuleList, nn.Sequential))
        arguments = tree_map(partial(self._resized, workload), self._arguments)
        with without_data(self._module):
            run = partial(self._module, *arguments)
            segments = trace(self._module, recorder, blocks, None, run)
        plan = SplitPlan(products={}, tables=frozenset())
        assembly = Assembly(self._names, segments, plan)
        return assembled(self.name, workload, assembly, has_loss=False, stated_heads=1)

    def _resized(self, workload: Workload, leaf: Any) -> Any:
        """An argument with the workload's samples and elements."""
        if not isinstance(leaf, Tensor):
            return leaf
        dtype = element_dtype(workload) if leaf.is_floating_point() else leaf.dtype
        shape = list(leaf.shape)
        if shape and shape[0] == self._samples:
            shape[0] = workload.microbatch_size
        return torch.empty(shape, dtype=dtype, device="meta")
