"""PipeDream's profiles are read as what they state, and wrong ones are told where."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from diaulos.errors import InputError
from diaulos.models.files import read_graph
from diaulos.models.graph import Edge, LayerGraph
from diaulos.models.pipedream import parse_pipedream
from diaulos.pricing.training_memory import with_training_state
from tests.models.profiles import Row, needs_profiles, profile, write
from tests.planning.reference import needs_reference, piper_file

EDGES = [("node1", "node2"), ("node2", "node3")]
IMAGES = 4 * 3 * 224**2


def rows() -> list[Row]:
    """An input, a convolution and a classifier."""
    return [
        Row(key="node3", description="Linear(in_features=64, out_features=10)", forward=0.5),
        Row(key="node1", description="Input", forward=600.0, backward=0.0, activations=(8.0,)),
        Row(key="node2", activations=(3.0, 4.5)),
    ]


def parse(text: str, **options: int) -> LayerGraph:
    return parse_pipedream(text, source="net.txt", **options)


def test_a_profile_is_understood() -> None:
    """Milliseconds become seconds, outputs are summed, and the input is left out, by name."""
    graph = parse(write(rows(), EDGES))
    convolution, classifier = graph.layers
    assert (convolution.id, convolution.name) == (2, "Conv2d")
    assert (classifier.id, classifier.name) == (3, "Linear")
    plain, again = convolution.options
    assert (plain.forward_seconds, plain.seconds) == (0.001, 0.003)
    assert (again.forward_seconds, again.seconds) == (0.001, 0.004)
    assert (plain.recompute, again.recompute) == (False, True)
    assert plain.activation_bytes == 7.5
    assert plain.fixed_memory.by_kind() == {
        **dict.fromkeys(plain.fixed_memory.by_kind(), 0.0),
        "parameters": 8.0,
        "gradients": 8.0,
    }
    assert again.memory_bytes(1) == pytest.approx(plain.memory_bytes(1))
    assert again.activation_bytes == pytest.approx(0.09 * 7.5)
    assert graph.edges == (Edge(source=2, target=3, bytes=7.5),)
    assert graph.provenance["left_out"] == "node1"


@st.composite
def profiles(draw: st.DrawFn) -> tuple[list[Row], list[tuple[str, str]]]:
    """Rows in any order, and edges from earlier to later nodes."""
    amounts = st.floats(0, 1e9)
    keys = [f"node{i}" for i in draw(st.permutations(range(draw(st.integers(1, 6)))))]
    rows = []
    for key in keys:
        forward = draw(amounts)
        rows.append(
            Row(
                key=key,
                description=draw(st.sampled_from(("Add", "LSTM(  (a): LSTM(1, 2))", "Input"))),
                forward=forward,
                backward=forward * draw(st.floats(1, 3)),
                activations=tuple(draw(st.lists(amounts, min_size=1, max_size=3))),
                parameters=draw(amounts),
            )
        )
    pairs = [(a, b) for i, a in enumerate(keys) for b in keys[i + 1 :]]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    return draw(st.permutations(rows)), edges


@given(profiles())
def test_any_profile_is_read_back(drawn: tuple[list[Row], list[tuple[str, str]]]) -> None:
    """Every node but the inputs is a layer with its amounts, every edge between them stays."""
    rows, edges = drawn
    fed = {target for _, target in edges}
    kept = {row.key: row for row in rows if row.description != "Input" or row.key in fed}
    assume(kept)
    graph = parse(write(rows, edges))
    assert {f"node{layer.id}" for layer in graph.layers} == kept.keys()
    for layer in graph.layers:
        row, plain = kept[f"node{layer.id}"], layer.options[0]
        assert plain.forward_seconds == row.forward / 1e3
        assert plain.seconds == row.forward / 1e3 + row.backward / 1e3
        assert plain.activation_bytes == math.fsum(row.activations)
        assert plain.parameter_bytes == row.parameters
    assert {(f"node{e.source}", f"node{e.target}"): e.bytes for e in graph.edges} == {
        (a, b): math.fsum(kept[a].activations) for a, b in edges if {a, b} <= kept.keys()
    }


def test_outputs_that_nobody_uses_are_left_out() -> None:
    """A `__getitem__` without a reader is no layer; one with a reader, and other ends, are."""
    free = {"forward": 0.0, "backward": 0.0, "parameters": 0.0}
    ends = [
        Row(key="node4", description="__getitem__(0)", **free),
        Row(key="node5", description="__getitem__(1)", **free),
        Row(key="node6", description="Size(0)", **free),
    ]
    edges = [*EDGES, ("node2", "node4"), ("node4", "node3"), ("node2", "node5"), ("node2", "node6")]
    graph = parse(write([*rows(), *ends], edges))
    assert [layer.id for layer in graph.layers] == [2, 3, 4, 6]
    assert graph.provenance["left_out"] == "node1, node5"


def test_nodes_may_have_any_ids() -> None:
    """Where the ids do not end with different numbers, layers are numbered as in the file."""
    text = write([Row(key="node5"), Row(key="compressed_node5")], [("node5", "compressed_node5")])
    graph = parse(text)
    assert [layer.id for layer in graph.layers] == [0, 1]
    assert [(edge.source, edge.target) for edge in graph.edges] == [(0, 1)]


def test_stages_of_a_planned_profile_are_read_over() -> None:
    """The stage that PipeDream's planner wrote beside a node is no part of the profile."""
    text = write(rows(), EDGES)
    planned = text.replace("\n\t", " -- stage_id=0\n\t", 1)
    assert planned != text
    assert parse(planned) == parse(text)


def test_the_batch_size_is_told_from_images() -> None:
    """An input of 224 or 299 pixels a side tells it; another one needs it to be given."""

    def size_of(input_bytes: float, **options: int) -> str:
        some = [replace(row, activations=(input_bytes,)) for row in rows()]
        return parse(write(some, EDGES), **options).provenance["microbatch_size"]

    assert size_of(256.0 * IMAGES) == "256"
    assert size_of(256.0 * IMAGES, batch_size=256) == "256"
    assert size_of(64.0 * 4 * 3 * 299**2) == "64"
    assert size_of(1000.0) == "unknown"
    assert size_of(1000.0, batch_size=7) == "7"
    with pytest.raises(InputError, match=r"batch_size is 3; the input of .* holds 256 images"):
        size_of(256.0 * IMAGES, batch_size=3)
    with pytest.raises(InputError, match="batch_size is 0; it must be at least 1"):
        size_of(1000.0, batch_size=0)


def test_training_state_can_be_added() -> None:
    """The optimizer's memory comes on top, and what recomputation needs once stays."""
    graph = with_training_state(parse(write(rows(), EDGES)), optimizer_bytes_per_parameter_byte=2)
    again = graph.layer(2).options[1].fixed_memory
    assert (again.parameters_bytes, again.gradients_bytes, again.optimizer_bytes) == (8, 8, 16)
    assert again.temporary_bytes == pytest.approx(0.91 * 7.5)


@pytest.mark.parametrize(
    ("wrong", "right", "message"),
    [
        ("node3 -- Linear", "node3 - Linear", "line 1: 'node3 - Linear"),
        ("parameter_size", "weight_size", "line 1: the node states forward_compute_time, back"),
        (", parameter_size=8.0", "", "line 1: the node states forward_compute_time, back"),
        ("time=0.5", "time=half", "line 1: forward_compute_time is 'half'; it must be a number"),
        ("time=0.5", "time=-0.5", "line 1: forward_compute_time is '-0.5'; it must be finite"),
        ("time=0.5", "time=nan", "line 1: forward_compute_time is 'nan'; it must be finite"),
        ("[3.0; 4.5]", "[3.0, 4.5]", "line 3: the node states forward_compute_time, backward"),
        ("[3.0; 4.5]", "[3.0; x]", "line 3: activation_size is '[3.0; x]'; it must be a number"),
        ("node1 -- Input", "node3 -- Input", "line 2: the node node3 stands twice"),
        ("\tnode1 -- node2", "\tnode1 -- node9", "line 4: there is no node node9"),
        ("\tnode1 -- node2", "\tnode1 - node2", "line 4: 'node1 - node2' is not an edge"),
        ("\tnode1 -- node2", "\tnode2 -- node3", "line 5: the edge node2 -- node3 stands twice"),
        ("\tnode1 -- node2", "\tnode3 -- node2", "the edges make a cycle"),
        ("\tnode1", "\n\n\tnode7", "line 6: there is no node node7"),
        ("\n\tnode1", " -- stage=1\n\tnode1", "line 3: 'node2 -- Conv2d(3, 64) -- "),
    ],
)
def test_errors_name_the_line(wrong: str, right: str, message: str) -> None:
    """What is wrong is told with the file, the line and the rule."""
    text = write(rows(), EDGES).replace(wrong, right, 1)
    with pytest.raises(InputError) as caught:
        parse(text)
    assert str(caught.value).startswith(f"net.txt: {message}")


def test_a_profile_of_inputs_alone_is_refused() -> None:
    """There must be something to plan."""
    with pytest.raises(InputError, match=r"net\.txt: the graph has no layers"):
        parse(write([Row(key="node1", description="Input")], []))


def test_times_without_synchronisation_are_refused() -> None:
    """16.7 ms of forwards against 221.7 ms of backwards, as in one published file, is refused."""
    text = write([Row(key="node1", forward=16.7, backward=221.7)], [])
    with pytest.raises(InputError, match=r"16\.7 ms .* 221\.7 ms \(13\.3 to 1\).*4 to 1"):
        parse(text)
    parse(write([Row(key="node1", forward=1.0, backward=4.0)], []))
    parse(write([Row(key="node1", forward=0.0, backward=0.0)], []))
    with pytest.raises(InputError, match="without any forward"):
        parse(write([Row(key="node1", forward=0.0)], []))
    with pytest.raises(InputError, match=r"\(0\.2 to 1\)"):
        parse(write([Row(key="node1", forward=1.0, backward=0.2)], []))


def test_a_profile_is_told_apart_by_its_content(tmp_path: Path) -> None:
    """Whatever the file is called, a profile is read as one, and only it takes a batch size."""
    path = tmp_path / "net.json"
    path.write_text(write(rows(), EDGES))
    file = read_graph(path, batch_size=32)
    assert file.piper is None
    assert file.graph.provenance["microbatch_size"] == "32"
    path.write_text(write(rows(), EDGES).replace(" -- ", " "))
    with pytest.raises(InputError, match=r"net\.json: line 1: .* is not a node"):
        read_graph(path)
    path.write_text("{}")
    with pytest.raises(InputError, match="batch_size is 32; only PipeDream's profiles take it"):
        read_graph(path, batch_size=32)


@needs_profiles
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("alexnet", (22, "256", 44.8, 40.5, 61.1)),
        ("vgg16", (40, "128", 233.9, 438.6, 138.4)),
        ("resnet18", (70, "256", 107.4, 152.3, 11.7)),
        ("resnet50", (176, "128", 182.5, 260.9, 25.6)),
        ("squeezenet1_0", (67, "256", 113.2, 172.1, 1.2)),
        ("gnmt", (37, "unknown", 33.5, 55.9, 193.8)),
    ],
)
def test_published_profiles(name: str, expected: tuple[int, str, float, float, float]) -> None:
    """Layers, batch, forward and backward ms, and million parameters are what is known of them."""
    graph = profile(name)
    options = [layer.options[0] for layer in graph.layers]
    forward = math.fsum(option.forward_seconds or 0.0 for option in options) * 1e3
    both = math.fsum(option.seconds for option in options) * 1e3
    parameters = math.fsum(option.parameter_bytes for option in options) / 4e6
    found = (round(forward, 1), round(both - forward, 1), round(parameters, 1))
    assert (len(graph.layers), graph.provenance["microbatch_size"], *found) == expected


@needs_profiles
@needs_reference
def test_piper_s_version_of_a_profile() -> None:
    """Piper's ResNet is PipeDream's ResNet-50: equal but for milliseconds and the input node."""
    theirs = {layer.name: layer for layer in piper_file("resnet.json").graph.layers}
    ours = profile("resnet50")
    assert theirs.keys() - {f"node{layer.id}" for layer in ours.layers} == {"node1"}
    for layer in ours.layers:
        for option, other in zip(layer.options, theirs[f"node{layer.id}"].options, strict=True):
            assert option.name == other.name
            assert option.recompute == other.recompute
            assert option.seconds * 1e3 == pytest.approx(other.seconds, rel=1e-12)
            assert option.parameter_bytes == other.parameter_bytes
            assert option.activation_bytes == pytest.approx(other.activation_bytes, rel=1e-12)
            assert option.fixed_bytes == pytest.approx(other.fixed_bytes, rel=1e-12)
    assert len(ours.edges) == len(piper_file("resnet.json").graph.edges) - 1
