"""A training job: what to train and how, the same on every rank."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from diaulos.errors import InputError
from diaulos.models.graph import LayerGraph
from diaulos.models.layers import LayeredModel, meta_layer
from diaulos.planning.plan import Plan
from diaulos.schedules.check import check
from diaulos.schedules.generators import GENERATORS, generate
from diaulos.schedules.schedule import Schedule
from diaulos.schedules.shape import PipelineShape
from diaulos.training.evaluation import Evaluation, forwards_only
from diaulos.training.grid import RankGrid, shards_of
from diaulos.training.learning_rates import LearningRateSchedule
from diaulos.training.loss_scale import LossScale, LossScaling, ScaleState
from diaulos.training.metrics import Throughput, model_flops
from diaulos.training.mitigation import DelayMitigation
from diaulos.training.objective import BatchSource, Objective
from diaulos.training.precision import Precision
from diaulos.training.stage import place_layers
from diaulos.training.stage_optimizer import OptimizerFactory


@dataclass(frozen=True, kw_only=True)
class TrainingJob:
    """What to train and how; the same on every rank."""

    model: LayeredModel
    graph: LayerGraph
    """The model's prices, whose options the plan names."""
    plan: Plan
    schedule: str
    data: BatchSource
    microbatch_size: int
    batches: int
    make_optimizer: OptimizerFactory
    learning_rate: LearningRateSchedule = field(default_factory=LearningRateSchedule)
    """By what the optimizer's own is multiplied."""
    mitigation: DelayMitigation = field(default_factory=DelayMitigation)
    """Against the delay of gradients."""
    precision: Precision = Precision.FLOAT32
    loss_scaling: LossScaling = field(default_factory=LossScaling)
    """Of float16."""
    clip_norm: float | None = None
    evaluation: Evaluation | None = None
    seed: int = 0
    chunks: int | None = None
    """Stages of the plan that share a rank; None for as many as the schedule has, or one."""
    peak_flops_per_second: float | None = None
    """Of the device of one rank, in the precision of the run; None where it is not known."""
    batches_between_flushes: int = 256
    """Schedules are made and checked for so many batches at a time. A schedule without flushes
    drains in between, which costs one fill and changes no number."""

    def __post_init__(self) -> None:
        for name in ("microbatch_size", "batches", "batches_between_flushes"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}", "it must be at least 1")
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise InputError(f"clip_norm is {self.clip_norm}", "it must be above 0, or not given")
        place_layers(self.model, self.graph, self.plan)
        shards_of(self.plan, self.shape)
        self._check_weights()
        self._check_statistics()
        if self.evaluation is not None:
            forwards_only(self.shape, self.evaluation.microbatches)
        if self.first_schedule.updates_stage_by_stage and self.clip_norm is not None:
            raise InputError(
                f"clip_norm is {self.clip_norm} and schedule is {self.schedule!r}",
                "its stages update on their own, before the norm of the whole gradient is known",
                "leave clip_norm out, or take schedule 2bw",
            )

        if self.first_schedule.updates_stage_by_stage and self.precision.is_scaled:
            raise InputError(
                f"precision is {self.precision.value} and schedule is {self.schedule!r}",
                "its stages update on their own, before it is known whether gradients overflowed",
                "take precision bf16, or schedule 2bw",
            )

        if self.mitigation.is_any and set(self.first_schedule.gradient_delays) != {1}:
            raise InputError(
                f"{self.mitigation} and schedule is {self.schedule!r}",
                "its gradients are not all one update late, which is what is mitigated",
                "take schedule 2bw, or leave the mitigation out",
            )

    def _check_weights(self) -> None:
        shapes = self.model.parameter_shapes()
        if not shapes:
            raise InputError(
                "no layer of the model has weights to train", "leave some that are not frozen"
            )
        for tied, owner in self.model.ties.items():
            if self.model.layer_of(tied).frozen and self.model.layer_of(owner).frozen:
                continue
            if shapes.get(tied) is None or shapes.get(tied) != shapes.get(owner):
                raise InputError(
                    f"{tied}, {shapes.get(tied)}, is tied to {owner}, {shapes.get(owner)}",
                    "tied parameters are parameters of the model and have the same shape",
                )
        if self.model.ties and self.first_schedule.updates_stage_by_stage:
            raise InputError(
                f"the model ties {', '.join(self.model.ties)} and schedule is {self.schedule!r}",
                "its stages update on their own, so that tied parameters would come apart",
                "train a model without ties, or take schedule 2bw",
            )

    def _check_statistics(self) -> None:
        for spec in self.model.layers:
            for part in meta_layer(spec).modules():
                if getattr(part, "track_running_stats", False):
                    raise InputError(
                        f"layer {spec.name} keeps running statistics, in {type(part).__name__}",
                        "they would be those of microbatches, seen by one version of the weights, "
                        "twice where they are recomputed, and in no checkpoint",
                        "take LayerNorm or GroupNorm, or track_running_stats=False",
                    )

    @cached_property
    def shape(self) -> PipelineShape:
        """The pipeline that the plan makes under the schedule."""
        if self.schedule not in GENERATORS:
            raise InputError(
                f"there is no schedule {self.schedule!r}", f"there are {', '.join(GENERATORS)}"
            )
        generator = GENERATORS[self.schedule]
        chunks = self.chunks or generator.chunks or 1
        return PipelineShape.of(self.plan, chunks=chunks, folded=generator.folded)

    @cached_property
    def grid(self) -> RankGrid:
        """All ranks of the run."""
        return RankGrid(shape=self.shape, shards=shards_of(self.plan, self.shape))

    @cached_property
    def first_schedule(self) -> Schedule:
        """The schedule of the first batch."""
        return generate(self.schedule, self.shape, 1)

    @cached_property
    def stage_of_layer(self) -> dict[str, int]:
        """The stage of each layer, by name."""
        placed = place_layers(self.model, self.graph, self.plan)
        return {layer.spec.name: stage for stage, layers in enumerate(placed) for layer in layers}

    @property
    def microbatches_per_update(self) -> int:
        """Those of a batch, or fewer where a schedule updates more often."""
        return self.first_schedule.shape.microbatches

    @property
    def updates(self) -> int:
        """Updates of the whole run."""
        return self.batches * self.plan.microbatches // self.microbatches_per_update

    @property
    def tokens_per_update(self) -> int:
        """Of all its microbatches, those included that a mask leaves out of the loss."""
        return self.model.tokens_per_sample * self.microbatch_size * self.microbatches_per_update

    @cached_property
    def throughput(self) -> Throughput:
        """What an update computes, counted where it can be compared to a peak."""
        peak = self.peak_flops_per_second
        if peak is None:
            return Throughput(tokens_per_update=self.tokens_per_update)
        flops = model_flops(self.model, self.microbatch_size) * self.microbatches_per_update
        return Throughput(
            tokens_per_update=self.tokens_per_update,
            flops_per_update=flops,
            peak_flops_per_second=peak * self.grid.ranks,
        )

    def make_loss_scale(
        self, *, decided: int = 0, state: ScaleState | None = None
    ) -> LossScale | None:
        """The scale of a run's losses, after so many updates; None where they are not scaled."""
        if not self.precision.is_scaled:
            return None
        delay = max(self.first_schedule.gradient_delays)
        return LossScale(self.loss_scaling, delay=delay, decided=decided, state=state)

    @property
    def objective(self) -> Objective:
        """The data and the loss, scaled for an update."""
        return self._objective(self.data, self.plan.microbatches, self.microbatches_per_update)

    @property
    def evaluation_objective(self) -> Objective | None:
        """The held-out data and their loss, if there are any."""
        if self.evaluation is None:
            return None
        microbatches = self.evaluation.microbatches
        return self._objective(self.evaluation.data, microbatches, microbatches)

    def _objective(self, data: BatchSource, microbatches: int, per_update: int) -> Objective:
        return Objective(
            data=data,
            precision=self.precision,
            microbatches=microbatches,
            microbatches_per_update=per_update,
            summed_loss=self.model.loss,
            reduction=self.model.reduction,
            tokens_per_microbatch=self.model.tokens_per_sample * self.microbatch_size,
        )

    def schedules(self, first_batch: int = 0, *, cuts: Sequence[int] = ()) -> Iterator[Schedule]:
        """Checked schedules that together run all batches from this one on.

        One ends wherever it is time to evaluate, where gradients begin to come late, and before
        each batch of `cuts`.
        """
        flushed = self.mitigation.flush_updates
        while first_batch < self.batches:
            stop = min(first_batch + self.batches_between_flushes, self.batches)
            stop = min([stop, *(cut for cut in (flushed, *cuts) if cut > first_batch)])
            is_flushed = first_batch < flushed
            if self.evaluation is not None:
                every = self.evaluation.every_batches
                stop = min(stop, (first_batch // every + 1) * every)
            name = "1f1b" if is_flushed else self.schedule
            schedule = generate(name, self.shape, stop - first_batch, first_batch)
            check(schedule)
            yield schedule
            first_batch = stop
