"""The parts of a workbook, each measured before openpyxl parses it.

openpyxl keeps the elements of a part in memory, all but those of rows and of shared
texts that it is through with. So the elements and bytes of each of these have a limit,
and so has all that is outside of them. They are counted by the parser that openpyxl
uses: what only looks like the end of a row, in a comment or in another row, counts as
what it is.
"""

import io
import zipfile
from collections.abc import Iterator
from typing import IO, Any
from xml.parsers import expat

from openpyxl.packaging.manifest import Manifest
from openpyxl.reader.excel import ExcelReader
from openpyxl.reader.strings import read_string_table
from openpyxl.styles.stylesheet import apply_stylesheet
from openpyxl.worksheet._reader import ROW_TAG, WorkSheetParser, iterparse
from openpyxl.xml.constants import SHARED_STRINGS, SHEET_MAIN_NS

from lometab.errors import DataError, FileTooLarge

TEXT = "si"
"""The element of a shared text."""
MAX_ROWS = 2**20
"""As many as a sheet can have."""
_MAX_PARTS = 1000
_MAX_BYTES = 2**23
"""Of a row, a shared text, and all that is neither."""
_MAX_ELEMENTS = 2**17
"""Of the same. A row of 16 384 cells has 50 000."""
_MAX_CELLS = 2**14
"""Of a row, as many as a sheet has columns."""
_MAX_IN_TEXTS = 2**23
"""Elements of all shared texts: four for each of as many as there may be."""
_MAX_FORMAT = 512
"""Characters of a number format, for which openpyxl takes time by their square. Excel
writes 255."""
_DENSE_BYTES, _MAX_DENSITY = 2**22, 200
"""A part that is longer is at most so many times as long as the file. Spreadsheets are
packed to a tenth; a thousandth is possible, for cells without anything in them."""
_BETWEEN = 32
"""Bytes from one row to the next: its end, and blanks."""
_MAX_TEXTS = 2**21
_MAX_TEXT_BYTES = 2**27
"""Shared texts are all in memory."""
_BLOCK = 2**16


class Archive(zipfile.ZipFile):
    """A zip file whose parts are measured when they are read."""

    def __init__(self, source: IO[bytes], max_bytes: int) -> None:
        super().__init__(source)
        self.max_bytes = max_bytes
        self.n_packed = source.seek(0, io.SEEK_END)
        parts = [
            each
            for each in self.infolist()
            if each.filename.lower().endswith((".xml", ".rels"))
        ]
        if len(parts) > _MAX_PARTS:
            raise FileTooLarge(f"the workbook has more than {_MAX_PARTS} parts")
        methods = {part.compress_type for part in parts}
        if not methods <= {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
            raise DataError("the workbook is packed in a way that no spreadsheet is")
        # zipfile gives no more than a part says that it has; but what is read without
        # a size, it unpacks whole.
        n_bytes = sum(part.file_size for part in parts)
        if n_bytes > max_bytes:
            raise FileTooLarge(
                f"the workbook unpacks to {n_bytes} bytes, beyond the limit of "
                f"{max_bytes}"
            )

    def read(self, name: Any, pwd: bytes | None = None) -> bytes:
        """A part that is parsed as a whole."""
        self._check_size(name, _MAX_BYTES)
        with self.open(name) as file:
            content = b"".join(iter(lambda: file.read(_BLOCK), b""))
        _Measure(str(name), "", 0).read(io.BytesIO(content))
        return content

    def open_rows(self, name: str, tag: str, most: int, max_bytes: int) -> IO[bytes]:
        """A part of which one row, or one text, is in memory at a time.

        Args:
            tag: of the row or the text.
            most: how many of these there may be.
        """
        self._check_size(name, min(max_bytes, self.max_bytes))
        with self.open(name) as file:
            _Measure(name, tag, most).read(file)
        return self.open(name)

    def _check_size(self, name: Any, most: int) -> None:
        size = self.getinfo(name).file_size
        if size > most:
            raise FileTooLarge(
                f"the part {str(name)[:100]!r} of the workbook has {size} bytes, "
                f"beyond the limit of {most}"
            )
        if size > max(_DENSE_BYTES, _MAX_DENSITY * self.n_packed):
            raise FileTooLarge(
                f"the part {str(name)[:100]!r} of the workbook unpacks to {size} "
                f"bytes, beyond the limit of {_MAX_DENSITY} times those of its file"
            )


class _Measure:
    """Goes through a part, and refuses it for what it would take in memory.

    Args:
        row: the name of the elements that are kept for a moment only.
        most: how many of these there may be.
    """

    def __init__(self, part: str, row: str, most: int) -> None:
        self._part, self._most = part[:100], most
        self._row = f"{SHEET_MAIN_NS}}}{row}"
        self._is_texts = row == TEXT
        self._parser = expat.ParserCreate(namespace_separator="}")
        self._parser.ordered_attributes = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.StartDoctypeDeclHandler = self._refuse_entities
        self._depth = self._row_depth = 0
        self._n_rows = self._n_inside = self._n_outside = 0
        self._n_cells = self._n_in_texts = 0
        self._n_fed = self._row_start = self._all_rows = self._fed_at_event = 0

    def read(self, file: IO[bytes]) -> None:
        while block := file.read(_BLOCK):
            if self._n_fed == 0 and block.startswith((b"\xff\xfe", b"\xfe\xff")):
                raise DataError("the workbook is not written in UTF-8")
            self._n_fed += len(block)
            self._parser.Parse(block)
            self._check_bytes()
        self._parser.Parse(b"", True)

    def _start(self, name: str, attributes: Any) -> None:
        self._depth += 1
        self._fed_at_event = self._n_fed
        if self._row_depth:
            self._n_inside += 1
            self._n_in_texts += self._is_texts
            self._n_cells += self._depth == self._row_depth + 1
        elif name == self._row:
            self._row_depth, self._n_inside, self._n_cells = self._depth, 0, 0
            self._row_start = self._parser.CurrentByteIndex
            self._n_rows += 1
        else:
            self._n_outside += 1
        if max(self._n_inside, self._n_outside) > _MAX_ELEMENTS:
            raise FileTooLarge(
                f"a row, a text or the rest of the part {self._part!r} of the workbook "
                f"has more than {_MAX_ELEMENTS} elements"
            )
        if self._n_cells > _MAX_CELLS and not self._is_texts:
            raise FileTooLarge(
                f"a row of the workbook has more than {_MAX_CELLS} cells"
            )
        if self._n_in_texts > _MAX_IN_TEXTS:
            raise FileTooLarge(
                f"the texts of the workbook have more than {_MAX_IN_TEXTS} elements"
            )
        if name.endswith("}numFmt") and any(
            len(value) > _MAX_FORMAT for value in attributes[1::2]
        ):
            raise DataError(
                f"a number format of the workbook has more than {_MAX_FORMAT} "
                "characters"
            )
        if self._n_rows > self._most:
            raise FileTooLarge(
                f"the part {self._part!r} of the workbook has more than {self._most} "
                "rows or texts"
            )

    def _end(self, name: str) -> None:
        self._fed_at_event = self._n_fed
        if self._depth == self._row_depth:
            n_bytes = self._parser.CurrentByteIndex - self._row_start
            self._row_depth = 0
            self._all_rows += n_bytes
            self._check(n_bytes)
        self._depth -= 1

    def _check_bytes(self) -> None:
        inside = self._n_fed - self._row_start if self._row_depth else 0
        self._check(inside)
        outside = self._n_fed - self._all_rows - inside
        self._check(outside - _BETWEEN * self._n_rows)
        self._check(self._n_fed - self._fed_at_event)

    def _check(self, n_bytes: int) -> None:
        if n_bytes > _MAX_BYTES:
            raise FileTooLarge(
                f"a row, a text or the rest of the part {self._part!r} of the workbook "
                f"has more than {_MAX_BYTES} bytes"
            )

    def _refuse_entities(self, *_: Any) -> None:
        raise DataError(
            f"the part {self._part!r} of the workbook declares entities, which no "
            "spreadsheet does"
        )


class _Rows(WorkSheetParser):  # type: ignore[misc]
    """Reads the rows of a sheet, and builds nothing of what else it has."""

    def parse(self) -> Iterator[tuple[int, list[dict[str, Any]]]]:
        for _, element in iterparse(self.source):
            if element.tag == ROW_TAG:
                yield self.parse_row(element)
                element.clear()
                self.row_dimensions.clear()  # heights, which nobody reads


class Book(ExcelReader):  # type: ignore[misc]
    """What the cells of a sheet need, and nothing else of a workbook."""

    def __init__(self, source: IO[bytes], max_bytes: int) -> None:
        super().__init__(source, read_only=True, data_only=True, keep_links=False)
        self.archive: Archive = Archive(source, max_bytes)
        self.package: Manifest
        self.read_manifest()
        self.read_workbook()
        apply_stylesheet(self.archive, self.wb)
        self._sheets = self._find_sheets()
        self.names = tuple(self._sheets)
        """Of the sheets that have cells."""

    def _find_sheets(self) -> dict[str, str]:
        rels, parts = self.parser.rels, {*self.archive.namelist()}
        found: dict[str, str] = {}
        for sheet in self.parser.sheets:
            rel = rels.get(sheet.id)
            if rel is None or "chartsheet" in rel.Type:
                continue
            if rel.target in parts:
                found.setdefault(sheet.name, rel.target)
        return found

    def read_rows(self, name: str) -> Iterator[list[Any]]:
        """The values of each row of a sheet, blank rows included."""
        texts = self._read_texts()
        part = self._sheets[name]
        max_bytes = self.archive.max_bytes
        with self.archive.open_rows(part, "row", MAX_ROWS, max_bytes) as file:
            parser = _Rows(
                file,
                texts,
                data_only=True,
                epoch=self.wb.epoch,
                date_formats=self.wb._date_formats,
                timedelta_formats=self.wb._timedelta_formats,
            )
            n_rows = 0
            for number, cells in parser.parse():
                if number <= n_rows:
                    raise DataError(
                        f"row {number} of the sheet stands after row {n_rows}; save "
                        "the workbook anew"
                    )
                for _ in range(n_rows, number - 1):
                    n_rows += 1
                    yield []
                n_rows += 1
                yield _spread(cells)

    def _read_texts(self) -> list[str]:
        part = self.package.find(SHARED_STRINGS)
        if part is None:
            return []
        name = part.PartName[1:]
        with self.archive.open_rows(name, TEXT, _MAX_TEXTS, _MAX_TEXT_BYTES) as file:
            return list(read_string_table(file))


def _spread(cells: list[dict[str, Any]]) -> list[Any]:
    """Values at the places of their columns."""
    width = max((cell["column"] for cell in cells), default=0)
    row: list[Any] = [None] * width
    for cell in cells:
        row[cell["column"] - 1] = cell["value"]
    return row
