"""The house style: what is drawn, and that lines can be told apart."""

from __future__ import annotations

import numpy as np

from polyfed.papers.shared import style


def test_rounding_errors_are_not_drawn_and_long_curves_are_thinned():
    values = np.array([1.0, 1e-20, 0.0, -1.0, 1e-3])
    long = np.arange(1.0, 5001.0)
    curves = [style.Curve(str(i), np.arange(5), values, "#000000") for i in range(2)]
    curves.append(style.Curve("long", np.arange(5000), long, "#000000"))
    figure = style.small_multiples([[style.Panel("a", curves), style.Panel("b", curves)]], x_label="t")
    drawn = figure.axes[0].lines
    np.testing.assert_array_equal(np.asarray(drawn[0].get_ydata()), [1, np.nan, np.nan, np.nan, 1e-3])
    thinned = np.asarray(drawn[2].get_ydata())
    assert len(thinned) <= style.POINTS
    assert (thinned[0], thinned[-1]) == (1.0, 5000.0)
    assert figure.axes[0].get_legend() is not None
    assert figure.axes[1].get_legend() is None
    six = [style.Curve(str(i), [0, 1], [1, 2], "#000000") for i in range(6)]
    assert len(style.small_multiples([[style.Panel("a", six)]], x_label="t").legends) == 1


def test_no_two_lines_of_a_figure_look_alike_even_where_there_are_more_than_colours() -> None:
    few = {str(i): "one family" for i in range(len(style.COLOURS))}
    assert [line for _, line in style.looks(few).values()] == [style.METHOD] * len(few)
    many = {f"{family} {i}": family for family in "abcd" for i in range(3)}
    looks = style.looks(many)
    assert len(set(looks.values())) == len(many)
    assert looks["a 0"][0] == looks["a 2"][0] != looks["b 0"][0]
