"""What all tests on real ranks have in common."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _one_thread():
    """The serial run computes with one thread, as each rank does: so sums have the same order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
