"""What a search says of itself."""

from __future__ import annotations

import pytest

from tilewright.tuning.runner import Spent


@pytest.mark.parametrize(
    ("exclusive", "checked"), [(False, "checked 90 %"), (True, "checked 45 %")]
)
def test_checks_are_shares_of_the_processes_that_check(exclusive: bool, checked: str) -> None:
    """Compilers', on a CPU's device."""
    spent = Spent(2, 1, exclusive, wall=10, compiling=4, checking=9, timing=1)
    assert checked in str(spent)
    assert "compiled 20 %" in str(spent)


def test_what_takes_compilers_time_besides_is_told_where_there_is_any() -> None:
    spent = Spent(4, wall=10, compiling=20, rescheduling=10, forecasting=4)
    assert "compiled 50 % of the time, rescheduled 25 %, forecast 10 %;" in str(spent)
    assert "compiled 50 % of the time;" in str(Spent(4, wall=10, compiling=20))
