"""`diaulos clusters`: the devices that clusters can be made of."""

from typing import Annotated

from cyclopts import Parameter

from diaulos.cli.output import make_console, print_json
from diaulos.clusters.catalogue import device_names, known_device
from diaulos.reporting.clusters import device_documents, devices_table, sources_lines


def clusters(
    *devices: str,
    sources: Annotated[bool, Parameter(negative=())] = False,
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> None:
    """List the devices that the package knows, with the nodes that they usually stand in.

    A cluster of them is written as nodes x devices of a node x device: 4x8xH100-80GB.

    Parameters
    ----------
    devices
        Which to list; all unless named.
    sources
        Say where each figure comes from.
    as_json
        Print one JSON object, sources included.
    """
    known = [known_device(name) for name in devices or device_names()]
    if as_json:
        print_json({"devices": device_documents(known)})
        return
    console = make_console()
    if sources:
        for line in sources_lines(known):
            console.print(line, markup=False, soft_wrap=True)
        return
    console.print(devices_table(known))
    example = f"4x8x{known[0].device.name}" if devices else "4x8xH100-80GB"
    console.print(f"rates per second; write a cluster as {example}, or describe it in a file")
