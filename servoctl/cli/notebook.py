"""Shows a `Run` in a notebook as the report of its check, and a `Trajectory` as its overview picture.

Design: IPython finds formatters by the name of a class. So nothing is imported before the first object is shown, and
the classes have no code for notebooks.
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
    from servoctl.report.style import write

    file = BytesIO()
    write(plot(trajectory), file)
    return file.getvalue()


def run_html(run: "Run") -> str:
    """The report of the check as HTML: a heading and a list per section, then errors and warnings."""
    from servoctl.check.report import check

    report = check(run)
    sections = [(run.name, []), *report.sections, ("errors", report.errors), ("warnings", report.warnings)]
    return "".join(_section(title, lines) for title, lines in sections if lines or title == run.name)


def _section(title: str, lines: list[str]) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<h4>{escape(title)}</h4><ul>{items}</ul>" if lines else f"<h3>{escape(title)}</h3>"
