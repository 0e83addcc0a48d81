"""A mesh of shards in one process that talks to nobody: for shapes, not for numbers."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh


@contextmanager
def fake_mesh(shards: int) -> Iterator[DeviceMesh | None]:
    """The mesh as the first of these shards sees it; None for one shard, which needs none.

    The process may not be one of a run.
    """
    if shards == 1:
        yield None
        return
    # Torch's own tests use it; nothing else makes the parts of a layer without other processes.
    from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: PLC0415

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=shards)
    try:
        yield DeviceMesh("cpu", list(range(shards)), mesh_dim_names=("shard",))
    finally:
        dist.destroy_process_group()
