"""What a picture shows, read back from its SVG."""

import re
import xml.etree.ElementTree as ET

NAMESPACE = "{http://www.w3.org/2000/svg}"


def spans(path: ET.Element) -> list[tuple[float, float]]:
    """Left and width of the strokes of a path."""
    found, end = [], 0.0
    for step, width in re.findall(r"m(-?[\d.]+) 0h([\d.]+)", path.get("d", "")):
        found.append((round(end + float(step), 1), float(width)))
        end = round(sum(found[-1]), 1)
    return found


def placed_texts(text: ET.Element) -> list[tuple[float, str]]:
    """The texts of an element, each with its place."""
    told, places = "".join(text.itertext()), text.get("x", "").split()
    parts = [told] if len(places) == 1 else told
    return [(float(place), part) for place, part in zip(places, parts, strict=True)]
