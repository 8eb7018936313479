"""Plots with axes: lines over steps, sizes, seconds or runs, and bars of ranks. The functions return numbers and text,
not markup.

A plot is WIDTH by HEIGHT units, which the page scales. The letters are large enough for a phone. Colours are CSS
classes: c1, c2 and so on distinguish lines, and "bad" marks findings.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from .words import number

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WIDTH, HEIGHT = 560, 240
LEFT, RIGHT, TOP, BOTTOM = 62, 26, 26, 42  # margins for the axes' numbers and titles
POINTS = 400  # of a line; more would not be visible
EACH_UP_TO = 64  # bars that are elements with their own tooltips; more are one path per colour
BAD_WIDTH = 3.0
NAMES_UP_TO = 8  # nodes whose names are printed below their ranks
LONGEST = 12  # characters of such a name
KIB = 1024


class Tick(NamedTuple):
    at: float
    label: str


@dataclass(frozen=True)
class Axis:
    """An axis of a plot. title: includes the unit. ticks: (value, label)."""

    title: str
    low: float
    high: float
    ticks: Sequence[tuple[float, str]] = ()
    log: bool = False

    def part(self, value: float) -> float:
        """Return the relative position of a value on the axis, from 0 (low) to 1 (high)."""
        if self.log:
            value, low, high = math.log(max(value, self.low)), math.log(self.low), math.log(self.high)
        else:
            low, high = self.low, self.high
        return min(max((value - low) / (high - low), 0.0), 1.0) if high > low else 0.5


class PlotLine(NamedTuple):
    """A line in a plot. dashed: for a second quantity of the same subject."""

    name: str
    css: str
    points: Sequence[tuple[float, float]]
    dashed: bool = False


class Mark(NamedTuple):
    """A highlighted point, with its tooltip."""

    x: float
    y: float
    css: str
    title: str


class Bar(NamedTuple):
    """One rank's value. floor: the required value, None if there is none."""

    name: str
    node: str
    value: float
    floor: float | None = None
    bad: bool = False


def upward(title: str, values: Sequence[float]) -> Axis:
    """Return a vertical axis from zero to a round number above all values."""
    top = max([value for value in values if math.isfinite(value)], default=0.0)
    step = _step(top or 1.0)
    count = max(1, math.ceil((top or 1.0) / step - 1e-9))
    return Axis(title, 0.0, count * step, [(step * place, number(step * place)) for place in range(count + 1)])


def along(title: str, low: float, high: float, told: Callable[[float], str] = number, whole: bool = True) -> Axis:
    """Return a horizontal axis from the first to the last value. whole: only whole numbers get ticks."""
    high = max(high, low + 1) if whole else high if high > low else low + 1
    step = max(_step(high - low, 6), 1 if whole else 0)
    first = math.ceil(low / step - 1e-9)
    places = [step * place for place in range(first, math.floor(high / step + 1e-9) + 1)]
    return Axis(title, low, high, [(value, told(value)) for value in places])


def sizes(title: str, low: float, high: float) -> Axis:
    """Return a logarithmic axis in bytes."""
    low, high = max(low, 1.0), max(high, low * 2, 2.0)
    powers = range(math.floor(math.log2(low)), math.ceil(math.log2(high)) + 1)
    every = max(1, math.ceil(len(powers) / 6))
    ticks = [(2.0**power, size(2.0**power)) for power in powers if power % every == 0 and low <= 2**power <= high]
    return Axis(title, low, high, ticks, log=True)


def size(count: float) -> str:
    """Format a size in binary units (1 KiB is 1024 bytes), which are usual for message sizes."""
    for unit, least in (("GiB", KIB**3), ("MiB", KIB**2), ("KiB", KIB)):
        if count >= least:
            return f"{number(count / least)} {unit}"
    return f"{number(count)} B"


def plot(
    title: str, told: str, x: Axis, y: Axis, lines: Sequence[PlotLine], marks: Sequence[Mark] = ()
) -> dict[str, Any]:
    drawn = []
    for line in lines:
        points = " ".join(f"{_x(x, across)},{_y(y, up)}" for across, up in _thin(line.points))
        drawn.append({"css": line.css, "dashed": line.dashed, "points": points})
    legend = [{"css": line.css, "dashed": line.dashed, "label": line.name} for line in lines if line.name]
    spots = [{"x": _x(x, one.x), "y": _y(y, one.y), "css": one.css, "title": one.title} for one in marks]
    return {**_frame(title, told, x, y), "lines": drawn, "marks": spots, "legend": legend}


def bars(title: str, told: str, unit: str, values: Sequence[Bar], middle: float | None = None) -> dict[str, Any]:
    """Plot a bar with its floor for each rank, in order. middle: draws a line across all bars at this value."""
    y = upward(unit, [top for bar in values for top in (bar.value, bar.floor or 0.0)])
    wide = (WIDTH - LEFT - RIGHT) / max(len(values), 1)
    x = Axis(*_names(values))
    floors = [
        f"M{LEFT + place * wide:.1f} {_y(y, bar.floor)}h{wide:.1f}"
        for place, bar in enumerate(values)
        if bar.floor is not None
    ]
    rects, paths = _bars(values, y, wide)
    shown = {**_frame(title, told, x, y), "rects": rects, "paths": paths, "floors": "".join(floors)}
    if middle is not None:
        height = _y(y, middle)
        shown["lines"] = [{"css": "middle", "dashed": True, "points": f"{LEFT},{height} {WIDTH - RIGHT},{height}"}]
    return shown


def _bars(values: Sequence[Bar], y: Axis, wide: float) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    gap = min(wide * 0.18, 6.0)
    rects: list[dict[str, Any]] = []
    parts: dict[str, list[str]] = {}
    for place, bar in enumerate(values):
        left, top, css = LEFT + place * wide + gap / 2, _y(y, bar.value), "bad" if bar.bad else "c1"
        high = round(HEIGHT - BOTTOM - top, 1)
        if len(values) <= EACH_UP_TO:
            said = f"{bar.name}: {number(bar.value)} {y.title}"
            told = said if bar.floor is None else f"{said}, required: {number(bar.floor)}"
            at = {"x": round(left, 1), "y": top, "width": round(wide - gap, 1), "height": high}
            rects.append({**at, "css": css, "title": told})
        else:
            # Bars of findings get a visible minimum width and are drawn last.
            broad = max(wide - gap, BAD_WIDTH if bar.bad else 0.0)
            parts.setdefault(css, []).append(f"M{left:.1f} {top}h{broad:.1f}v{high}h-{broad:.1f}z")
    return rects, [{"css": css, "d": "".join(parts[css])} for css in ("c1", "bad") if css in parts]


def _names(values: Sequence[Bar]) -> tuple[str, float, float, list[tuple[float, str]]]:
    """Return the axis below the bars. The ticks are the nodes of the ranks, or rank numbers if there are many nodes."""
    nodes: dict[str, list[int]] = {}
    for place, bar in enumerate(values):
        nodes.setdefault(bar.node, []).append(place)
    high = float(max(len(values), 1))
    if len(nodes) <= NAMES_UP_TO:
        ticks = [(sum(its) / len(its) + 0.5, _cut(name)) for name, its in nodes.items()]
        return "ranks of each node", 0.0, high, ticks
    whole = along("rank", 0, high)
    return "rank", 0.0, high, [(value + 0.5, label) for value, label in whole.ticks if value < high]


def _frame(title: str, told: str, x: Axis, y: Axis) -> dict[str, Any]:
    """Return the parts that all plots have. The other parts are empty."""
    return {
        "title": title,
        "told": told,
        "width": WIDTH,
        "height": HEIGHT,
        "left": LEFT,
        "right": WIDTH - RIGHT,
        "top": TOP,
        "bottom": HEIGHT - BOTTOM,
        "x_title": x.title,
        "y_title": y.title,
        "x_ticks": [Tick(_x(x, value), label) for value, label in x.ticks],
        "y_ticks": [Tick(_y(y, value), label) for value, label in y.ticks],
        "lines": [],
        "marks": [],
        "rects": [],
        "paths": [],
        "floors": "",
        "legend": [],
    }


def _thin(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    if len(points) <= POINTS:
        return list(points)
    return [*points[: -1 : -(-len(points) // POINTS)], points[-1]]


def _x(axis: Axis, value: float) -> float:
    return round(LEFT + axis.part(value) * (WIDTH - LEFT - RIGHT), 1)


def _y(axis: Axis, value: float) -> float:
    return round(HEIGHT - BOTTOM - axis.part(value) * (HEIGHT - TOP - BOTTOM), 1)


def _step(span: float, count: int = 4) -> float:
    """Return a round step that divides the span into approximately `count` parts."""
    rough = span / count
    power = 10.0 ** math.floor(math.log10(rough))
    return next(nice * power for nice in (1, 2, 2.5, 5, 10) if nice * power >= rough * 0.999)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
