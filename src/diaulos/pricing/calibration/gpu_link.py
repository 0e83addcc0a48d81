"""The link between two GPUs of this machine, from copies."""

import torch

from diaulos.clusters.cluster import Link
from diaulos.pricing.calibration.timing import Timer

_SMALL_BYTES = 4
_LEAST_SHARE_OF_TRANSFER = 0.1


def measure_gpu_link(message_bytes: int) -> Link:
    """Latency and bandwidth of copies from the first GPU to the second, or to itself if alone."""
    source = torch.device("cuda", 0)
    target = torch.device("cuda", min(1, torch.cuda.device_count() - 1))
    timer = Timer(source, threads=1)

    def seconds(size_bytes: int) -> float:
        sent = torch.zeros(size_bytes, dtype=torch.uint8, device=source)
        received = torch.empty_like(sent, device=target)
        return timer.seconds(lambda: received.copy_(sent))

    small, large = seconds(_SMALL_BYTES), seconds(message_bytes)
    transfer = max(large - small, _LEAST_SHARE_OF_TRANSFER * large)
    return Link(
        bandwidth_bytes_per_second=message_bytes / transfer, latency_seconds=small, duplex=True
    )
