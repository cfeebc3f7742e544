"""How a notebook shows a `Run` and a `Trajectory`: the check as HTML, the plots as a picture.

Design: IPython keeps formatters by the name of a class, so nothing is imported before the first object is shown, and
the classes themselves know nothing of notebooks.
"""

from html import escape
from io import BytesIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from servoctl.assembly.run import Run
    from servoctl.run_folder.trajectory import Trajectory


def register(shell: Any) -> None:
    """Adds the formatters to an IPython shell."""
    formatters = shell.display_formatter.formatters
    formatters["image/png"].for_type_by_name("servoctl.run_folder.trajectory", "Trajectory", trajectory_png)
    formatters["text/html"].for_type_by_name("servoctl.assembly.run", "Run", run_html)


def trajectory_png(trajectory: "Trajectory") -> bytes:
    """The overview of a trajectory as a PNG file."""
    from servoctl.report import plot

    file = BytesIO()
    plot(trajectory).savefig(file, format="png")
    return file.getvalue()


def run_html(run: "Run") -> str:
    """The check of a run: one heading and one list per section, then errors and warnings."""
    from servoctl.check.report import check

    report = check(run)
    sections = [(run.name, []), *report.sections, ("errors", report.errors), ("warnings", report.warnings)]
    return "".join(_section(title, lines) for title, lines in sections if lines or title == run.name)


def _section(title: str, lines: list[str]) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<h4>{escape(title)}</h4><ul>{items}</ul>" if lines else f"<h3>{escape(title)}</h3>"
