"""More files as people have them: headers, edges, and forms of numbers and dates.

`tests.support.hostile_files` has the others.
"""

import json
from collections.abc import Callable

import pyarrow as pa

from tests.support.hostile_files import BAD, Case, many, parquet, text

FIFTY = range(50)
NUMBERS: dict[str, tuple[Callable[[int], str], str, float]] = {
    # how the number i is written, the name of the form, and what the first one is
    "dollars": (lambda i: f'"${i + 1:,}.50"', "$1,234.5", 1.5),
    "dollars, negative": (lambda i: f"-${i + 1}", "$1,234.5", -1),
    "dollars in parentheses": (lambda i: f"($ {i + 1}.25)", "$1,234.5", -1.25),
    "euros behind": (lambda i: f'"{i + 1},50 €"', "1.234,5 €", 1.5),
    "pounds": (lambda i: f"£{1000 * i + 1}", "£1,234.5", 1),
    "francs": (lambda i: f"CHF {i + 1}.05", "CHF 1,234.5", 1.05),
    "kilograms": (lambda i: f"{i + 1}.5 kg", "1,234.5 kg", 1.5),
    "kilometres per litre": (lambda i: f"{20 + i / 10} kmpl", "1,234.5 kmpl", 20),
    "shares": (lambda i: f"{i + 1}.5%", "1,234.5 %", 1.5),
    "apostrophes": (lambda i: f"{i + 1}'234", "1,234.5", 1234),
    "typographic apostrophes": (lambda i: f"{i + 1}\u2019234", "1,234.5", 1234),
    "blanks": (lambda i: f"{i + 1} 234", "1,234.5", 1234),
    "narrow blanks": (lambda i: f"{i + 1}\u202f234.5", "1,234.5", 1234.5),
    "as in India": (lambda i: f'"{i + 1},23,456"', "1,234.5", 123456),
    "minus signs": (lambda i: f"\u2212{i + 1}.5", "1,234.5", -1.5),
    "parentheses": (lambda i: f"({i + 1})", "1,234.5", -1),
    "decimal commas": (lambda i: f'"{i + 1},75"', "1.234,5", 1.75),
    "decimal commas and exponents": (lambda i: f'"{i + 1},5E+02"', "1.234,5", 150),
}

DATES: dict[str, tuple[Callable[[int], str], str]] = {
    "slashes": (lambda i: f"2019/06/{i % 28 + 1:02d}", "y/m/d"),
    "short months": (lambda i: f"{i % 28 + 1}-Jun-2019", "d mon y"),
    "long months": (lambda i: f"{i % 28 + 1} August 2019", "d mon y"),
    "months first": (lambda i: f'"June {i % 28 + 1}, 2019"', "mon d y"),
    "months first, a time": (lambda i: f'"Jun {i % 28 + 1}, 2019 7:30 PM"', "mon d y"),
    "times": (lambda i: f"{i % 24}:{i % 60:02d}", "h:m"),
    "times with seconds": (lambda i: f"{i % 24:02d}:{i % 60:02d}:05", "h:m"),
    "times of 12 hours": (lambda i: f"{i % 12 + 1}:{i % 60:02d} pm", "h:m"),
}


def spoiled(row: Callable[[int], str], *texts: str, count: int = 400) -> bytes:
    """A column with some texts in the middle of it."""
    values = [row(i) for i in range(count)]
    values[100 : 100 + len(texts)] = texts
    return text("x,y", *(f"{value},{i % 3}" for i, value in enumerate(values)))


EXTRA = [
    # Headers
    Case(
        "years among the names",
        many(lambda i: f"c{i % 4},{i}.5,{i}.25,{i % 2}", header="country,2019,2020,y"),
        found={"header": True},
        cells={"2019": ["0.5"], "country": ["c0"]},
        n_rows=60,
        warns="taken as names",
    ),
    Case(
        "dates among the names",
        many(lambda i: f"{i % 4},{i}.5,{i}.2", header="shop,2020-01-01,2020-02-01"),
        found={"header": True},
        n_rows=60,
    ),
    Case(
        "names that pandas counts",
        many(lambda i: f"{i}.5,{i}.25,{i % 2}", header='"0","1","target"'),
        found={"header": True},
        cells={"0": ["0.5"], "target": ["0"]},
        n_rows=60,
    ),
    Case(
        "nothing but names that pandas counts",
        many(lambda i: f"{i}.5,{i}.25,{i}.125", header="0,1,2"),
        found={"header": True},
        n_rows=60,
        warns="set `header` to false",
    ),
    Case(
        "years above texts",
        many(lambda i: f"c{i % 4},{i},{i},k{i % 3}", header="country,2019,2020,label"),
        found={"header": True},
        n_rows=60,
    ),
    Case(
        "no header, a text that returns",
        text(*(f"{i}.5,{i}.1,{'setosa' if i % 3 else 'iris'}" for i in range(60))),
        found={"header": False},
        n_rows=60,
        warns="set `header` to true",
    ),
    Case(
        "no header, numbers alone",
        text(*(f"{i}.5,{i * i % 7}" for i in range(60))),
        found={"header": False},
        n_rows=60,
    ),
    Case(
        "no header, the first value missing",
        text("?,3,no", *(f"{i}.5,{i},{'yes' if i % 2 else 'no'}" for i in range(60))),
        found={"header": False},
        n_rows=61,
    ),
    # Titles, units, totals
    Case(
        "a padded title",
        text("Report,,,", *(f"a{i},{i},2,3" for i in range(50))).replace(
            b"a0,0,2,3", b"name,x,y,z"
        ),
        found={"skip_lines": 1, "header": True},
        n_rows=49,
        warns="is a title",
    ),
    Case(
        "three lines of titles",
        text("Sales", "Region: north", "") + many(lambda i: f"{i % 7},{i}.5"),
        found={"skip_lines": 2},
        n_rows=60,
        warns="the first 2 lines",
    ),
    Case(
        "skipped lines, told",
        text("one,two,three", "a;b") + many(lambda i: f"{i},{i % 7}"),
        {"skip_lines": 2},
        n_rows=60,
        cells={"x": ["0", "1"]},
    ),
    Case(
        "no title, told",
        text("Report", "a,b,c", "1,2,3"),
        {"skip_lines": 0},
        **BAD,
        line=1,
    ),
    Case(
        "all lines skipped",
        text("a,b", "1,2"),
        {"skip_lines": 5},
        **BAD,
        says="no lines below",
    ),
    Case(
        "units in brackets",
        text(
            "time,speed,kind", "[s],[m/s],", *(f"{i},{i}.5,k{i % 2}" for i in range(50))
        ),
        n_rows=50,
        kinds={"speed": "numeric", "kind": "categorical"},
        warns="holds units",
    ),
    Case(
        "units",
        text("mass,speed", "kg,km/h", *(f"{i % 9},{i}.5" for i in range(50))),
        n_rows=50,
        kinds={"mass": "numeric", "speed": "numeric"},
        warns="line 2",
    ),
    Case(
        "a total at the end",
        many(lambda i: f"shop {i % 5},{i}.5", 50) + b"Total,1225\n",
        n_rows=50,
        found={"skip_footer": 1},
        warns="skip_footer",
    ),
    Case(
        "a total and a note at the end",
        many(lambda i: f"shop {i % 5},{i}.5", 50)
        + text("", "Grand Total:,1225", "Source: the shops"),
        n_rows=50,
        found={"skip_footer": 2},
    ),
    Case(
        "a total that is kept",
        many(lambda i: f"shop {i % 5},{i}.5", 50) + b"Total,1225\n",
        {"skip_footer": 0},
        n_rows=51,
    ),
    Case(
        "a footer, told",
        many(lambda i: f"{i},{i % 7}", 50) + b"end of file\n",
        {"skip_footer": 1},
        n_rows=50,
    ),
    Case(
        "a footer that is no note",
        many(lambda i: f"{i},{i % 7}", 50) + b"end\n",
        **BAD,
        line=52,
        says="skip_footer",
    ),
    Case(
        "totals among the rows",
        many(lambda i: f"{'Total' if i % 5 == 4 else i},{i}.5", 50),
        n_rows=50,
        found={"skip_footer": 0},
    ),
    Case(
        "a value that is called mean",
        many(lambda i: f"{['sum', 'max', 'mean'][i % 3]},{i}.5", 60),
        n_rows=60,
        found={"skip_footer": 0},
    ),
    Case(
        "a few rows and a total are no evidence",
        text("shop,x", "a,1.5", "b,2.5", "Total,4"),
        n_rows=3,
        found={"skip_footer": 0},
    ),
    Case(
        "a title, units and a total",
        text("Measured in 2024", "time,speed", "(s),(m/s)")
        + text(*(f"{i % 9},{i}.5" for i in range(50)), "Sum,1250"),
        n_rows=50,
        found={"skip_lines": 1, "skip_footer": 1},
        kinds={"time": "numeric", "speed": "numeric"},
    ),
    # Numbers
    *(
        Case(
            f"numbers: {name}",
            many(lambda i, write=write: f"{write(i)},{i % 7}"),  # type: ignore[misc]
            kinds={"x": "numeric"},
            formats={"x": form},
            warns=f"written as {form}",
        )
        for name, (write, form, _) in NUMBERS.items()
    ),
    Case(
        "several units",
        many(lambda i: f"{i} {'kg' if i % 2 else 'g'},{i % 7}"),
        kinds={"x": "ignore"},
        warns="several units (g, kg)",
    ),
    Case(
        "shares among plain numbers",
        many(lambda i: f"{i}{'%' if i % 2 else ''},{i % 7}"),
        kinds={"x": "ignore"},
        warns="several units",
    ),
    Case(
        "one letter among 400 numbers",
        spoiled(lambda i: f"{i}.5", "4O"),
        kinds={"x": "ignore"},
        looks={"x": "number"},
        warns="'4O' in line 102",
    ),
    Case(
        "a word among few numbers",
        spoiled(lambda i: str(i % 9), "many"),
        kinds={"x": "categorical"},
        warns="set the column to `numeric`",
    ),
    Case(
        "bounds",
        many(lambda i: f"{'<0.5' if i % 4 == 0 else i / 7},{i % 7}", 200),
        kinds={"x": "ignore"},
        looks={"x": "number"},
        warns="only a bound is known",
    ),
    Case(
        "codes with a letter",
        many(lambda i: f"{'AB'[i % 2]}{i % 9},{i % 7}"),
        kinds={"x": "categorical"},
        formats={"x": None},
    ),
    Case(
        "one form for a file",
        many(lambda i: f"{i + 1},234;{i + 1},234.5;0.5", header="x;y;z"),
        formats={"x": "1,234.5", "y": "1,234.5"},
    ),
    Case(
        "a point that marks no thousands",
        many(lambda i: f"{i + 1},234;0.{i + 1}", header="x;y"),
        formats={"x": "1,234.5", "y": None},
    ),
    Case(
        "two forms in a file",
        many(lambda i: f"{i + 1}.234,5;{i + 1},234.5", header="x;y"),
        formats={"x": "1.234,5", "y": "1,234.5"},
        warns="some columns write numbers as",
    ),
    # Dates
    *(
        Case(
            f"dates: {name}",
            many(lambda i, write=write: f"{write(i)},{i % 7}"),  # type: ignore[misc]
            kinds={"x": "datetime"},
            formats={"x": form},
            warns=f"written as {form}",
        )
        for name, (write, form) in DATES.items()
    ),
    Case(
        "dates but for one",
        spoiled(lambda i: f"{1900 + i % 99}-0{i % 9 + 1}-{i % 28 + 1:02d}", "soon"),
        looks={"x": "date"},
        kinds={"x": "ignore"},
        warns="set the column to `datetime`",
    ),
    # Words that mean missing
    Case(
        "none as a word",
        many(lambda i: f"{['none', 'mild', 'severe'][i % 3]},{i % 7}"),
        kinds={"x": "categorical"},
        warns="read as missing: 20 times 'none'",
    ),
    Case(
        "none as a value",
        many(lambda i: f"{['none', 'mild', 'severe'][i % 3]},{i % 7}"),
        {"not_missing": ["none"]},
        kinds={"x": "categorical"},
    ),
    # JSON
    Case(
        "JSON lines",
        text('{"a": 1, "b": "x"}', '{"a": 3, "b": "y"}'),
        cells={"a": ["1", "3"], "b": ["x", "y"]},
        found={"format": "json"},
    ),
    Case(
        "JSON lines with gaps",
        text('{"a": 1.5}', "", '{"b": true, "a": null}'),
        cells={"a": ["1.5", None], "b": [None, "True"]},
    ),
    Case(
        "a JSON array",
        json.dumps([{"a": i, "b": "xy"[i % 2]} for i in range(50)]).encode(),
        n_rows=50,
        kinds={"b": "categorical"},
    ),
    Case(
        "a JSON array over lines",
        json.dumps([{"a": 1}, {"a": "2"}], indent=2).encode(),
        cells={"a": ["1", "2"]},
    ),
    Case(
        "JSON as pandas splits it",
        b'{"columns":["a","b"],"index":[0,1],"data":[[1,"x"],[3,"y"]]}',
        cells={"a": ["1", "3"], "b": ["x", "y"]},
    ),
    Case("JSON lines, cut", text('{"a": 1}', '{"a": 2}', '{"a'), **BAD, line=3),
    Case("a JSON array, cut", b'[{"a": 1}, {"a"', **BAD, line=1, says="no JSON"),
    Case("JSON with lists", b'[{"a": [1]}, {"a": [2]}]', **BAD, says="a list"),
    Case("a JSON array of numbers", b'[{"a": 1}, 2]', **BAD, says="row 2"),
    # No tables
    Case(
        "an HTML page",
        b"\n<!DOCTYPE html><html><body>Sign in</body></html>",
        status=415,
        code="unsupported_media_type",
        says="an HTML page",
    ),
    Case(
        "a Git LFS pointer",
        text("version https://git-lfs.github.com/spec/v1", "oid sha256:00", "size 9"),
        status=415,
        code="unsupported_media_type",
        says="git lfs pull",
    ),
    Case(
        "XML",
        b'<?xml version="1.0"?><rows/>',
        status=415,
        code="unsupported_media_type",
        says="XML",
    ),
    Case("carets", text("a^b", "1^x", "3^y"), **BAD, line=1, says="^ between"),
    Case("blanks", text("a b", "1 2.5", "3  4"), **BAD, line=1, says="blanks between"),
    Case("sentences", text("note", "one two", "three four", "x y z"), n_rows=3),
    # Indices
    Case(
        "an index of pandas",
        many(lambda i: f"{i * 37 % 60},{i}.5,{i % 3}", header="Unnamed: 0,x,y"),
        kinds={"Unnamed: 0": "ignore"},
        warns="index that pandas wrote",
    ),
    Case(
        "an index of pandas without a name",
        many(lambda i: f"{i * 37 % 60},{i}.5,{i % 3}", header=",x,y"),
        kinds={"column_1": "ignore"},
        warns="has no name and numbers the rows",
    ),
    Case(
        "an index of pandas in Parquet",
        parquet(
            x=pa.array([i / 7 for i in range(60)]),
            __index_level_0__=pa.array([i * 37 % 60 for i in range(60)]),
        ),
        kinds={"__index_level_0__": "ignore"},
        warns="index that pandas wrote",
    ),
]
