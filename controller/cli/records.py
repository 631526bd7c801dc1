"""Tables that stay readable on narrow terminals, and whose words are taken literally."""

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text


def literal(words: str) -> Text:
    """The words without power over rich or the terminal: members chose some of them."""
    return Text("".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in words))


class Records(Table):
    """A table with one row for each record.

    Args:
        title: above the table.
        headings: of the columns; ``#`` in front aligns a column right.
    """

    def __init__(self, title: str, *headings: str):
        super().__init__(title=literal(title), title_justify="left")
        self._headings = [heading.lstrip("#") for heading in headings]
        self._records: list[tuple[str, ...]] = []
        for heading, name in zip(headings, self._headings, strict=True):
            self.add_column(name, justify="right" if heading.startswith("#") else "left")

    def add_row(self, *cells: str) -> None:  # type: ignore[override]
        """One record, a cell for each heading."""
        self._records.append(cells)
        super().add_row(*map(literal, cells))

    def fitted(self, console: Console) -> list[Table]:
        """This table if the console is wide enough; else the same on its side, a column for each record,
        in as many tables as it takes."""
        if _fits(self, console):
            return [self]
        tables: list[Table] = []
        rest = self._records
        while rest:
            count = len(rest)
            while count > 1 and not _fits(self._on_its_side(rest[:count]), console):
                count -= 1
            tables.append(self._on_its_side(rest[:count], titled=not tables))
            rest = rest[count:]
        return tables

    def _on_its_side(self, records: list[tuple[str, ...]], titled: bool = True) -> Table:
        table = Table(title=self.title if titled else None, title_justify="left", show_header=False)
        table.add_column(style="bold", no_wrap=True)
        for _ in records:
            table.add_column(overflow="fold")
        for heading, *cells in zip(self._headings, *records, strict=True):
            table.add_row(heading, *map(literal, cells))
        return table


def _fits(table: Table, console: Console) -> bool:
    unlimited = console.options.update(width=10_000)
    return Measurement.get(console, unlimited, table).maximum <= console.width
