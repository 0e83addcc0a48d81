"""How a run file says that weights are updated: optimizer, learning rate, and against delay."""

from collections.abc import Mapping

from diaulos.documents import Value
from diaulos.models.layers import LayeredModel
from diaulos.planning.plan import Plan
from diaulos.training.learning_rates import LearningRateSchedule
from diaulos.training.mitigation import DelayMitigation
from diaulos.training.optimizers import Muon, OptionValue, TorchOptimizer, torch_optimizers


def parse_optimizer(value: Value, model: LayeredModel, plan: Plan) -> Muon | TorchOptimizer:
    """The optimizer of a table that has one member, by its name.

    Refuses those that need whole parameters where the plan splits them.
    """
    known = (*torch_optimizers(), "muon")
    named = value.members()
    if len(named) != 1 or next(iter(named)) not in known:
        raise value.error(
            f"names {', '.join(named) or 'nothing'}", f"it names one optimizer: {', '.join(known)}"
        )
    ((name, settings),) = named.items()
    optimizer = _parse_muon(settings, model) if name == "muon" else _parse_torch(name, settings)
    split = [stage for stage, own in enumerate(plan.stages) if own.tensor_parallel > 1]
    if split and not optimizer.is_elementwise:
        raise settings.error(
            f"updates whole matrices, and stage {split[0]} of the plan is split",
            "a shard has a part of each",
            "take adamw, or a plan without tensor parallelism",
        )
    return optimizer


def parse_learning_rate(value: Value) -> LearningRateSchedule:
    """How the learning rate goes."""
    fields = value.fields((), ("warm_up_updates", "cosine_updates", "final_share"))
    counts = {key: count.integer() for key, count in fields.items() if key != "final_share"}
    with value.context():
        return LearningRateSchedule(
            **counts,
            final_share=fields["final_share"].number() if "final_share" in fields else 0.0,
        )


def parse_mitigation(value: Value) -> DelayMitigation:
    """What is done against gradients that come late."""
    counts = ("flush_updates", "learning_rate_updates")
    fields = value.fields((), (*counts, "extrapolated_weights"))
    with value.context():
        return DelayMitigation(
            **{key: fields[key].integer() for key in counts if key in fields},
            extrapolated_weights=fields["extrapolated_weights"].boolean()
            if "extrapolated_weights" in fields
            else False,
        )


def _parse_torch(name: str, value: Value) -> TorchOptimizer:
    members = dict(value.members())
    rate = _learning_rate(value, members)
    with value.context():
        return TorchOptimizer(name=name, learning_rate=rate, options=_options(members))


def _parse_muon(value: Value, model: LayeredModel) -> Muon:
    members = dict(value.members())
    rate = _learning_rate(value, members)
    if "adamw" not in members:
        raise value.error("lacks the key 'adamw'", "Muon is for matrices, AdamW for the rest")
    others = members.pop("adamw")
    options = dict(others.members())
    layers = [model.layers[0].name, model.layers[-1].name]
    if "layers" in options:
        layers = [_layer_name(each, model) for each in options.pop("layers").items()]
    beside = _learning_rate(others, options)
    with others.context():
        adamw = TorchOptimizer(name="adamw", learning_rate=beside, options=_options(options))
    with value.context():
        return Muon(
            learning_rate=rate,
            options=_options(members),
            others=adamw,
            layers_of_others=tuple(layers),
        )


def _layer_name(value: Value, model: LayeredModel) -> str:
    with value.context():
        return model.layer(value.text()).name


def _learning_rate(value: Value, members: dict[str, Value]) -> float:
    """The learning rate, taken out of the members of an optimizer's table."""
    if "learning_rate" not in members:
        raise value.error("lacks the key 'learning_rate'", "every optimizer has one")
    return members.pop("learning_rate").number(above=0)


def _options(members: Mapping[str, Value]) -> dict[str, OptionValue]:
    return {name: _option(value) for name, value in members.items()}


def _option(value: Value) -> OptionValue:
    """A switch, a number, a name or several numbers, as torch's options are."""
    if isinstance(value.raw, list):
        return tuple(each.number() for each in value.items())
    if isinstance(value.raw, bool | str):
        return value.raw
    if isinstance(value.raw, int):
        return value.integer()
    return value.number()
