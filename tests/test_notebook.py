"""A notebook shows the check of a run and the plots of a trajectory."""

import subprocess
import sys

CODE = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
import servoctl as sc
run = sc.load("two_mass_spring", ["run.duration=0.1"], engine="vm")
shown, _ = shell.display_formatter.format(run)
drawn, _ = shell.display_formatter.format(run.simulate())
print(sorted(shown), sorted(drawn))
print(shown["text/html"])
print(drawn["image/png"][:8])
"""


def test_a_notebook_shows_the_check_of_a_run_and_the_picture_of_a_trajectory() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    kinds, html, png = done.stdout.splitlines()
    assert kinds == "['text/html', 'text/plain'] ['image/png', 'text/plain']"
    assert html.startswith("<h3>two_mass_spring</h3><h4>plant</h4><ul><li>TwoMassSpring: 2 coordinates")
    assert png == repr(b"\x89PNG\r\n\x1a\n")
