"""Large machines need more stack than some processes and threads have: it is raised where the system allows it."""

import resource
import subprocess
import sys
import threading

from servoctl.study.series import STACK, _deep_threads

SMALL = 256 * 1024


def small_stack() -> None:
    resource.setrlimit(resource.RLIMIT_STACK, (SMALL, resource.getrlimit(resource.RLIMIT_STACK)[1]))


def test_the_command_line_raises_a_small_limit_of_its_stack() -> None:
    """With 256 kB, `sweep two_arms_box` dies of a segmentation fault while it traces."""
    code = (
        "import resource\nfrom servoctl.cli import main\n"
        "try:\n    main(['list', 'plants'])\nexcept SystemExit:\n    pass\n"
        "print(resource.getrlimit(resource.RLIMIT_STACK)[0])"
    )
    done = subprocess.run([sys.executable, "-c", code], preexec_fn=small_stack, capture_output=True, text=True)
    assert int(done.stdout.split()[-1]) == 8 * 2**20, done.stderr


def test_threads_of_generated_code_have_a_stack_of_their_own_size() -> None:
    before, depths = threading.stack_size(SMALL), []
    try:
        with _deep_threads():
            depths.append(threading.stack_size())
        depths.append(threading.stack_size())
    finally:
        threading.stack_size(before)
    assert depths == [STACK, SMALL]
