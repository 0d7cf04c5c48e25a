# SPDX-License-Identifier: Apache-2.0
"""Curves over sizes as an SVG, both axes logarithmic; the same input gives the same bytes."""
import html
import math

WIDTH, HEIGHT = 860, 420
LEFT, RIGHT, TOP, BOTTOM = 60, 250, 36, 48
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#393b79", "#637939")


def text(x, y, what, anchor="middle", more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{html.escape(what)}</text>'


def ticks_between(low, high):
    """1, 2 and 5 times powers of ten that lie in the range, and one on each side."""
    steps = [m * 10.0 ** e for e in range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2) for m in (1, 2, 5)]
    below = max(step for step in steps if step <= low)
    above = min(step for step in steps if step >= high)
    return [step for step in steps if below <= step <= max(above, below * 2)]


def draw(title, x_name, curves, floor, size_text):
    """curves: {label: {x: microseconds}}; floor: a function of x, or None."""
    curves = {label: {x: us for x, us in curve.items() if x > 0 and us} for label, curve in curves.items()}
    sizes = sorted({x for curve in curves.values() for x in curve})
    if not sizes:
        return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} 40">' + text(LEFT, 20, title + ": nothing over sizes", "start") + "</svg>\n"
    floors = {x: floor(x) for x in sizes} if floor else {}
    values = [us for curve in curves.values() for us in curve.values()] + list(floors.values())
    x_low, x_high = math.log(sizes[0]), max(math.log(sizes[-1]), math.log(sizes[0]) + 1)
    ticks = ticks_between(min(values), max(values))
    y_low, y_high = math.log(ticks[0]), math.log(ticks[-1])

    def at_x(x):
        return LEFT + (math.log(x) - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT)

    def at_y(us):
        return TOP + (y_high - math.log(us)) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="11">',
           "<!-- SPDX-License-Identifier: Apache-2.0 -->", "<!-- Made by bench/plot.py. -->",
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>', text(LEFT, 20, title, "start", ' font-size="13"')]
    for tick in ticks:
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at_y(tick):.1f}" y2="{at_y(tick):.1f}" stroke="#ddd"/>')
        out.append(text(LEFT - 6, at_y(tick) + 4, f"{tick:g}", "end"))
    for size in sizes[::max(1, math.ceil(len(sizes) / 10))]:
        out.append(f'<line x1="{at_x(size):.1f}" x2="{at_x(size):.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="#ddd"/>')
        out.append(text(at_x(size), HEIGHT - BOTTOM + 16, size_text(size)))
    out.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, x_name + "; time of a call in us"))
    lines = [(label, curve, COLOURS[i % len(COLOURS)], "") for i, (label, curve) in enumerate(curves.items())]
    if floors:
        lines.append(("floor", floors, "black", ' stroke-dasharray="6 4"'))
    for row, (label, curve, colour, dash) in enumerate(lines):
        points = [(at_x(x), at_y(us)) for x, us in sorted(curve.items())]
        out.append(f'<polyline fill="none" stroke="{colour}"{dash} points="' + " ".join(f"{x:.1f},{y:.1f}" for x, y in points) + '"/>')
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>' for x, y in points if not dash]
        y = TOP + 10 + 18 * row
        out.append(f'<line x1="{WIDTH - RIGHT + 14}" x2="{WIDTH - RIGHT + 40}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="2"{dash}/>')
        out.append(text(WIDTH - RIGHT + 46, y + 4, label, "start"))
    return "\n".join(out) + "\n</svg>\n"
