import numpy as np
import pandas as pd
import polars as pl
import pytest

from pscd.frames import Column, Schema, decode, encode, look, read_frame, spell

N = 40
rng = np.random.default_rng(0)


def test_arrays_have_the_columns_of_the_schema():
    frame = pd.DataFrame({"a": rng.normal(size=N), "b": rng.normal(size=N)})
    np.testing.assert_array_equal(encode(frame.to_numpy(), look(frame)).x, frame.to_numpy())


def test_a_new_file_may_write_numbers_and_dates_another_way():
    days = pd.date_range("2020-01-01", periods=N)
    size = rng.normal(size=N).round(3)
    first = pd.DataFrame({"size": size.astype(str), "day": days.strftime("%Y-%m-%d")})
    schema = look(first)
    comma = pd.DataFrame({"size": [f"{s:.3f}".replace(".", ",") for s in size], "day": days.strftime("%d.%m.%Y")})
    for other in (comma, pd.DataFrame({"size": size, "day": days})):
        encoded = encode(other, schema)
        assert not encoded.stray.any()
        np.testing.assert_array_equal(encoded.x, encode(first, schema).x)
    unit = encode(first.assign(size=first["size"] + " kg"), schema)
    np.testing.assert_array_equal(unit.x, encode(first, schema).x)
    one = first.copy()
    one.loc[3, "size"] = "0,5"  # a single slip is no other way to write
    assert encode(one, schema).stray.sum() == 1


def test_another_way_to_write_numbers_must_fit_better():
    """Here it would be the one without a unit, which reads fewer cells than the one that is known."""
    schema = Schema((Column("a", "number", suffix=" kg"),))
    cells = ["2.5"] * 3 + ["5 kg"] + ["7%"] * 3 + ["x"] * 2
    x = encode(pd.DataFrame({"a": cells}), schema).x[:, 0]
    np.testing.assert_array_equal(x, [2.5] * 3 + [5.0] + [np.nan] * 5)


def test_the_decimal_sign_that_was_told_counts(tmp_path):
    schema = Schema((Column("a", "number"), Column("b", "number")))
    (tmp_path / "x.csv").write_text("a;b\n1,234;1\n5,678;2\n")
    assert encode(read_frame(tmp_path / "x.csv"), schema).x[:, 0].tolist() == [1234, 5678]
    assert encode(read_frame(tmp_path / "x.csv", decimal=","), schema).x[:, 0].tolist() == [1.234, 5.678]


def test_the_missing_values_that_were_told_are_remembered():
    schema = look(pd.DataFrame({"a": ["1", "2", "none", "4"], "b": ["x", "y", "x", "y"]}), missing=["b=x"])
    encoded = encode(pd.DataFrame({"a": ["x", "1"], "b": ["x", "y"]}), schema)
    assert encoded.missing.tolist() == [[False, True], [False, False]]
    assert encoded.stray.tolist() == [[True, False], [False, False]]


def test_samples_keep_the_types_of_the_table():
    frame = pd.DataFrame(
        {
            "size": rng.normal(size=N).round(1),
            "count": rng.integers(3, 90, N),
            "flag": rng.integers(0, 2, N),
            "truth": rng.integers(0, 2, N).astype(bool),
            "grade": rng.integers(1, 4, N),
            "share": rng.choice([0.25, 0.5], N),
            "day": pd.date_range("2020-01-01", periods=N).strftime("%Y%m%d").astype(int),
            "word": rng.choice(["x", "y"], N),
        }
    )
    schema = look(frame, kinds={"grade": "category", "share": "category"})
    x = encode(frame, schema).x
    back = decode(x, schema)
    pd.testing.assert_frame_equal(back, frame, check_dtype=False)
    assert [back[name].dtype.kind for name in frame.columns[:6]] == ["f", "i", "i", "b", "i", "f"]
    drawn = decode(x + rng.normal(scale=2.0, size=x.shape), schema)
    assert (drawn["size"] == drawn["size"].round(1)).all()
    for name in ("flag", "truth", "grade", "share", "word"):
        assert set(drawn[name]) == set(frame[name]), name
    x[0] = np.nan
    holes = decode(x, schema, like=pl.DataFrame())
    assert holes.row(0) == (None,) * 8
    assert holes.row(1) == tuple(frame.iloc[1])


@pytest.mark.parametrize(
    ("texts", "spelt"),
    [
        (["1.234,50 €", "0,25 €", "unbekannt", "7,00 €", "8,00 €"], "1.234,50 €"),
        (["12 %", "13 %", "14 %"], "12 %"),
        (["1.0", "2.0", "", "3.0"], "1.0"),
        (["Jun 12 1998", "Feb 01 1999"], "Jun 12 1998"),
        (["9:15 AM", "11:30 PM"], "09:15 AM"),
        (["JA", "nein", "JA", "ja"], "JA"),
    ],
)
def test_values_are_spelt_as_the_file_spells_them(texts, spelt):
    frame = pd.DataFrame({"a": texts})
    schema = look(frame, ids=())
    written = spell(decode(encode(frame, schema).x, schema), schema)
    assert written["a"][0] == spelt
    assert (written["a"] == "").sum() == schema.columns[0].missing + schema.columns[0].stray


def test_rare_and_new_values_are_the_level_other():
    words = [f"w{i % 20}" for i in range(800)] + [f"rare {i}" for i in range(100)]
    schema = look(pd.DataFrame({"a": words}))
    encoded = encode(pd.DataFrame({"a": ["w3", "never seen"]}), schema)
    assert schema.columns[0].levels[int(encoded.x[0, 0])] == "w3"
    assert encoded.x[1, 0] == len(schema.columns[0].levels) - 1
    assert not encoded.stray.any()


def test_what_never_is_negative_does_not_become_so():
    counts = Schema((Column("n", "integer", decimals=0, lowest=0.0), Column("t", "integer", decimals=0, lowest=-3.0)))
    assert decode(np.array([[-1.2, -1.2], [np.nan, 2.0]]), counts).values.tolist()[0] == [0, -1]
