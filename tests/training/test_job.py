"""What a job refuses, and what it works out from its plan and its schedule."""

from dataclasses import replace

import pytest

from diaulos.errors import InputError
from tests.training.toy import CONFIG, toy_job


def test_stages_that_share_a_rank_make_a_shorter_pipeline():
    """Four stages of a plan run on two ranks where the schedule has two chunks a rank."""
    looped = toy_job("interleaved", (1,) * 4, 2, chunks=2)
    folded = toy_job("zb-v", (1,) * 4, 2)

    assert [(0, 2), (1, 3)] == [looped.shape.stages_of(rank) for rank in range(2)]
    assert [(0, 3), (1, 2)] == [folded.shape.stages_of(rank) for rank in range(2)]


def test_pipedream_updates_after_every_microbatch():
    """A batch of m microbatches a replica is m updates, each the mean over its own tokens."""
    job = toy_job("pipedream", (2, 2), 3)

    assert job.updates == 3 * job.batches
    assert job.microbatches_per_update == 2
    assert job.tokens_per_update == 2 * 2 * job.model.tokens_per_sample


def _tied(ties):
    job = toy_job("2bw", (1, 1), 2)
    return replace(job, model=replace(job.model, ties=ties))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: toy_job("3bw", (1, 1), 2), "there is no schedule '3bw'"),
        (lambda: toy_job("zb-v", (1, 1, 1), 2), "chunks is 2 and the plan has 3 stages"),
        (
            lambda: toy_job("interleaved", (2, 1, 1, 1), 2, chunks=2),
            "stage 2 has 1 replicas and stage 0 2",
        ),
        (lambda: toy_job("2bw", (1, 1), 2, chunks=2), "chunks=1 and folded=False"),
        (lambda: toy_job("pipedream", (1, 1), 2, clip_norm=1.0), "leave clip_norm out"),
        (lambda: toy_job("2bw", (1, 1), 2, batches=0), "batches is 0"),
        (
            lambda: toy_job("pipedream", (1, 1), 2, config=replace(CONFIG, tied=True)),
            "the model ties head.scores.weight and schedule is 'pipedream'",
        ),
        (
            lambda: _tied({"head.scores.weight": "embedding.positions"}),
            r"head.scores.weight, \(256, 16\), is tied to embedding.positions, \(8, 16\)",
        ),
        (lambda: _tied({"head.lost": "embedding.positions"}), "head.lost, None, is tied"),
    ],
)
def test_what_cannot_run_is_refused(make, message):
    """A job that no rank could run says so before any is started, with what would do."""
    with pytest.raises(InputError, match=message):
        make()
