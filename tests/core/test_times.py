import os
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanomem_core.errors import TimeError
from nanomem_core.times import format_date, format_time, parse_time, system_clock

MOMENT = 1_772_357_400.0  # 2026-03-01T09:30:00Z
DAY = 1_772_323_200.0  # 2026-03-01T00:00:00Z


class Nowhere(tzinfo):
    """A zone that knows no offset, which Python counts as naive."""

    def utcoffset(self, when):
        return None

    def dst(self, when):
        return None

    def tzname(self, when):
        return None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0.0),
        (-1.5, -1.5),
        (np.float64(MOMENT), MOMENT),
        (np.int64(5), 5.0),
        ("1772357400", MOMENT),
        (" 1772357400.25 ", MOMENT + 0.25),
        ("20260301", DAY),
        ("2026-03-01", DAY),
        ("2026-W09-7", DAY),
        ("2026-03-01T09:30:00Z", MOMENT),
        ("2026-03-01 09:30", MOMENT),
        ("2026-03-01T11:30+02:00", MOMENT),
        ("2026-03-01T09:30:00.5", MOMENT + 0.5),
        (date(2026, 3, 1), DAY),
        (datetime(2026, 3, 1, 9, 30), MOMENT),
        (datetime(2026, 3, 1, 9, 30, tzinfo=UTC), MOMENT),
        (datetime(2026, 3, 1, 4, 30, tzinfo=timezone(timedelta(hours=-5))), MOMENT),
        (datetime(2026, 3, 1, 9, 30, tzinfo=Nowhere()), MOMENT),
        ("0001-01-01", -62_135_596_800.0),
        ("9999-12-31T23:59:59Z", 253_402_300_799.0),
    ],
)
def test_every_accepted_form_is_one_number(value, expected):
    found = parse_time(value)
    assert type(found) is float
    assert found == expected


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        [],
        b"2026",
        "",
        "yesterday",
        "2026-13-01",
        "20261301",
        "nan",
        float("nan"),
        float("inf"),
        "1e999",
        10**400,
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))),
        datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-14))),
        "0001-01-01T00:00+10:00",
    ],
)
def test_other_values_are_refused_with_the_name_of_the_argument(value):
    with pytest.raises(TimeError, match=r"^since: "):
        parse_time(value, "since")


@pytest.mark.parametrize("value", [1_772_357_400_000, "1772357400000", -62_135_596_800_000.0])
def test_milliseconds_are_refused_with_advice(value):
    with pytest.raises(TimeError, match="looks like milliseconds: divide by 1000"):
        parse_time(value)


def test_what_is_no_time_in_any_unit_gets_no_advice():
    with pytest.raises(TimeError, match=r"years 1 to 9999\.$"):
        parse_time(1e18)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "1970-01-01T00:00:00Z"), (MOMENT, "2026-03-01T09:30:00Z"), (-0.25, "1969-12-31T23:59:59.750000Z")],
)
def test_times_are_written_in_utc(seconds, text):
    assert format_time(seconds) == text


@given(st.floats(-62_135_596_800, 253_402_300_799))
def test_a_written_time_reads_back_to_the_microsecond(seconds):
    assert format_time(seconds).startswith(f"{format_date(seconds)}T")
    assert parse_time(format_time(seconds)) == pytest.approx(seconds, rel=0, abs=1e-4 if abs(seconds) > 1e10 else 1e-6)


@given(
    st.datetimes(timezones=st.timezones() | st.just(UTC), min_value=datetime(2, 1, 1), max_value=datetime(9998, 1, 1))
)
def test_an_aware_datetime_is_its_own_moment(moment):
    assert parse_time(moment) == parse_time(moment.isoformat()) == pytest.approx(moment.timestamp())


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "America/St_Johns", "Pacific/Kiritimati"])
def test_the_zone_of_the_machine_changes_nothing(zone):
    code = (
        "from datetime import date, datetime; from nanomem_core.times import format_time, parse_time;"
        "values = ['2026-03-01', '2026-03-01T00:00', date(2026, 3, 1), datetime(2026, 3, 1)];"
        "print(*map(parse_time, values), format_time(0))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"TZ": zone}, capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == [str(DAY)] * 4 + ["1970-01-01T00:00:00Z"]


def test_the_system_clock_is_the_present():
    assert abs(system_clock() - datetime.now(UTC).timestamp()) < 60
