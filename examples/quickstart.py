"""Plan a measured GPT-2 for eight small machines, and see what each schedule makes of the plan."""

from pathlib import Path

import diaulos

graph = diaulos.read_graph(Path(__file__).parent / "gpt2.json").graph
cluster = diaulos.Cluster.flat(
    devices=8,
    memory_bytes=diaulos.parse_bytes("4GiB"),
    bandwidth_bytes_per_second=diaulos.parse_bandwidth("1GB/s"),
)
plan = diaulos.plan(graph, cluster, microbatches=32)

for number, stage in enumerate(plan.stages):
    names = [graph.layer(layer).name for layer in stage.layers]
    print(f"stage {number}: {names[0]} to {names[-1]} on {stage.devices} devices")

for schedule in ("gpipe", "1f1b", "2bw"):
    timeline = diaulos.simulate_plan(graph, plan, cluster, schedule=schedule, batches=4)
    idle = timeline.step_bubble_fraction
    print(f"{schedule}: {timeline.step_seconds:.2f} s a batch, {idle:.1%} idle")
