"""How tables, figures and the page show the interfaces, in a config. It decides no job but these drawings."""

from typing import Annotated

from pydantic import Field

from tokencodes.spec import Strict, nearest

Colour = Annotated[str, Field(pattern=r"^#[0-9a-fA-F]{6}$")]


class Display(Strict):
    """Names, order and colours in tables and figures. A change draws them anew and runs nothing else."""

    baseline: str | None = Field(
        None, description="the interface that the others are compared with; null: `learned`, or else the first one"
    )
    labels: dict[str, str] = Field(default_factory=dict, description="what to call an interface, by its name")
    groups: dict[str, list[str]] = Field(
        default_factory=dict, description="interfaces to show together, by the title of the group"
    )
    colours: dict[str, Colour] = Field(
        default_factory=dict, description="colour of an interface as `#rrggbb`, by its name"
    )

    def problems(self, interfaces: list[str]) -> list[str]:
        """One line for each name that is no interface of the config, and for each that is in two groups."""
        grouped = [(f"display.groups.{title}", name) for title, names in self.groups.items() for name in names]
        named = [
            *([("display.baseline", self.baseline)] if self.baseline is not None else []),
            *((f"display.labels.{name}", name) for name in self.labels),
            *((f"display.colours.{name}", name) for name in self.colours),
            *grouped,
        ]
        problems = [
            f"{where}: {name!r} is not in interfaces{nearest(name, interfaces)}"
            for where, name in named
            if name not in interfaces
        ]
        names = [name for _, name in grouped]
        twice = sorted({name for name in names if names.count(name) > 1})
        return problems + [f"display.groups: {name!r} is named twice" for name in twice]

    def label(self, interface: str) -> str:
        """What to call an interface."""
        return self.labels.get(interface, interface)

    def baseline_of(self, interfaces: list[str]) -> str:
        """The interface that the others are compared with."""
        if self.baseline is not None:
            return self.baseline
        return "learned" if "learned" in interfaces else interfaces[0]
