"""How tables, figures and the page show the interfaces, in a config. It decides no job but these drawings."""

from collections import Counter
from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from tokencodes.spec import MAX_ENTRIES, Label, Strict, nearest

Colour = Annotated[str, Field(pattern=r"^#[0-9a-fA-F]{6}$")]


class Display(Strict):
    """Names, order and colours in tables and figures. A change draws them anew and runs nothing else."""

    baseline: str | None = Field(
        None, description="the interface that the others are compared with; null: `learned`, or else the first one"
    )
    labels: dict[str, Label] = Field(
        default_factory=dict, max_length=MAX_ENTRIES, description="what to call an interface, by its name"
    )
    groups: dict[Label, Annotated[list[str], Field(max_length=MAX_ENTRIES)]] = Field(
        default_factory=dict,
        max_length=MAX_ENTRIES,
        description="interfaces to show together, by the title of the group",
    )
    colours: dict[str, Colour] = Field(
        default_factory=dict, max_length=MAX_ENTRIES, description="colour of an interface as `#rrggbb`, by its name"
    )

    def problems(self, interfaces: list[str]) -> Iterator[str]:
        """One line for each name that is no interface of the config, and for each that is in two groups."""
        grouped = [(f"display.groups.{title}", name) for title, names in self.groups.items() for name in names]
        named = [
            *([("display.baseline", self.baseline)] if self.baseline is not None else []),
            *((f"display.labels.{name}", name) for name in self.labels),
            *((f"display.colours.{name}", name) for name in self.colours),
            *grouped,
        ]
        for where, name in named:
            if name not in interfaces:
                yield f"{where}: {name!r} is not in interfaces{nearest(name, interfaces)}"
        for name, count in Counter(name for _, name in grouped).items():
            if count > 1:
                yield f"display.groups: {name!r} is named twice"

    def label(self, interface: str) -> str:
        """What to call an interface."""
        return self.labels.get(interface, interface)

    def baseline_of(self, interfaces: list[str]) -> str:
        """The interface that the others are compared with."""
        if self.baseline is not None:
            return self.baseline
        return "learned" if "learned" in interfaces else interfaces[0]
