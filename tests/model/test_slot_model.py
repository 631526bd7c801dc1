"""The slot protocol, searched exhaustively for small numbers of ranks and windows."""

import pytest

from model.slot_model import HangError, Model, WrongSumError, explore


@pytest.mark.parametrize(
    "model",
    [
        Model(ranks=2, window=1, packets=10),
        Model(ranks=2, window=2, packets=12),
        Model(ranks=2, window=3, packets=9),
        Model(ranks=3, window=1, packets=9),
        Model(ranks=3, window=2, packets=9),
        Model(ranks=4, window=1, packets=6),
    ],
    ids=str,
)
def test_no_wrong_sum_and_no_hang(model: Model) -> None:
    assert explore(model) > 100


@pytest.mark.parametrize(
    "model",
    [
        Model(ranks=2, window=1, packets=4, credit=2),
        Model(ranks=2, window=2, packets=6, credit=3),
        Model(ranks=2, window=1, packets=4, slots=1),
        Model(ranks=2, window=2, packets=6, slots=2),
        Model(ranks=2, window=2, packets=6, slots=3),
    ],
    ids=str,
)
def test_a_weaker_protocol_is_caught(model: Model) -> None:
    """More credit than W, or fewer slots than 2W, must fail: the search can tell."""
    with pytest.raises((HangError, WrongSumError)):
        explore(model)
