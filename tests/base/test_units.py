"""Durations, sizes and times as people write and read them."""

from datetime import datetime

import pytest

from stoker.base.errors import InvalidSpec
from stoker.base.units import (
    format_duration,
    format_size,
    from_iso,
    iso,
    parse_duration,
    parse_size,
    since_midnight,
)


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("2h", 7200), ("1h30m", 5400), ("0.5h", 1800), (" 3D ", 259200), ("1w", 604800),
                                               ("1:30:00", 5400), ("36:00:01", 129601), ("2-12:00:00", 216000)])
def test_durations_that_people_write(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "2x", "2", "h", "-1h", "1h 30m", "0s", "1e3s", "nan", "9999999d", "२h"])
def test_a_bad_duration_is_refused_with_a_hint(text):
    with pytest.raises(InvalidSpec) as caught:
        parse_duration(text)
    assert "2h" in caught.value.hint


@pytest.mark.parametrize("text", ["90", "1.5"])
def test_a_number_without_a_unit_is_refused_with_the_units(text):
    with pytest.raises(InvalidSpec) as caught:
        parse_duration(text)
    assert caught.value.message == f"'{text}' has no unit." and f"{text}s means seconds, {text}m means minutes" in caught.value.hint


@pytest.mark.parametrize("text", ["1:30", "1:99:00", "0:00:00", "1:2:3:4"])
def test_a_clock_that_may_mean_two_things_is_refused(text):
    with pytest.raises(InvalidSpec):
        parse_duration(text)


@pytest.mark.parametrize(("text", "count"), [("24GB", 24 * 10**9), ("16GiB", 16 * 2**30), ("1.5 mb", 1_500_000), ("512b", 512), ("2T", 2 * 10**12)])
def test_sizes_that_people_write(text, count):
    assert parse_size(text) == count


@pytest.mark.parametrize("text", ["", "24", "GB", "-1GB", "1XB", "1.GB"])
def test_a_bad_size_is_refused(text):
    with pytest.raises(InvalidSpec):
        parse_size(text)


@pytest.mark.parametrize(("seconds", "text"), [(0, "0s"), (41.4, "41s"), (125, "2m 5s"), (10920, "3h 2m"), (349200, "4d 1h"), (-3, "0s"), (3600, "1h")])
def test_durations_are_shown_in_their_two_largest_units(seconds, text):
    assert format_duration(seconds) == text


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (999, "999 B"), (4000, "4.0 kB"), (123456, "123 kB"), (999_600, "1.0 MB"), (12 * 10**14, "1200 TB")])
def test_sizes_are_shown_short(count, text):
    assert format_size(count) == text


def test_times_are_utc_and_come_back():
    assert iso(0) == "1970-01-01T00:00:00.000Z"
    assert from_iso(iso(1_700_000_000.125)) == 1_700_000_000.125


def test_days_begin_at_local_midnight():
    midnight = datetime(2026, 11, 28).timestamp()
    assert (since_midnight(midnight + 3600), since_midnight(midnight + 3600, 1)) == (3600, 90000)
    assert since_midnight(midnight) == 1.0
