"""The exported law compiles without a warning and equals the reference; what the command prints and refuses."""

import ctypes
import dataclasses
import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np
import pytest

from servoctl.assembly import Run, load
from servoctl.assembly.direct import evaluate
from servoctl.cli import main
from servoctl.engine.decomposition import decompose_function, decomposition_cost
from servoctl.engine.symbol import Symbol
from servoctl.errors import ConfigError
from servoctl.export import Export, export, write
from servoctl.export.interface import _members, comment, identifier
from servoctl.export.source import StandaloneSource
from servoctl.laws.law import AttachedLaw
from servoctl.mechanics.terms import Terms
from servoctl.simulation.engine_choice import make_loop
from servoctl.simulation.system import System
from servoctl.types import Array, Command, Status
from tests.config_texts import plant_text
from tests.faces import exit_code

CC = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
STRICT = ("-Wall", "-Wextra", "-pedantic", "-std=c99", "-Werror")
CONFIGS = (
    "two_mass_spring",
    "coordinated_robots",
    "coordinated_robots_limited",
    "flexible_joint_motor_raised",
    "scara_path",
    "swarm",
)

needs_compiler = pytest.mark.skipif(CC is None, reason="no C compiler on the path")


@cache
def exported(name: str) -> Export:
    return export(load(name))


def built(made: Export, folder: Path, *flags: str) -> Path:
    """The test of an export, compiled; any warning is an error."""
    write(made.files, folder, force=True)
    program = folder / "law_test"
    sources = [str(folder / name) for name in made.files if name.endswith(("_law.c", "_test.c"))]
    done = subprocess.run(
        [str(CC), *STRICT, *flags, "-o", str(program), *sources, "-lm"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    return program


def passes(program: Path, *before: str) -> int:
    """Number of checks that the test of an export passes; none fails."""
    done = subprocess.run([*before, str(program)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    match = re.fullmatch(r"(\d+) passed, 0 failed\n", done.stdout)
    assert match is not None
    return int(match[1])


@needs_compiler
@pytest.mark.parametrize("name", CONFIGS)
def test_the_law_compiles_without_a_warning_and_equals_numpy(name: str, tmp_path: Path) -> None:
    made = exported(name)
    n = len(load(name).start.q)
    assert made.vectors == 20
    assert passes(built(made, tmp_path, "-O2")) == 20 + 1 + 2 * n  # vectors; t, q and v not finite


@needs_compiler
def test_a_law_with_bounds_equals_numpy_and_says_which_of_them_hold_the_inputs(tmp_path: Path) -> None:
    """One bound that the start leaves, and one that is far away."""
    rows = "{name: tilt, holonomic: 'theta3 - 0.05'}, {name: joint, position: {theta1: [-3, 3]}, acceleration: 5}"
    made = export(load("coordinated_robots", [f"bounds=[{rows}]"]))
    assert passes(built(made, tmp_path, "-O2")) > 20
    header = made.files["coordinated_robots_law.h"]
    assert "int bound_active[2]; /* tilt, joint: 1 while the bound holds the inputs, else 0 */" in header
    assert "[1/s] how fast h may approach 0; default 15" in header
    program = tmp_path / "start.c"
    program.write_text(
        """#include "coordinated_robots_law.h"
        #include <stdio.h>
        int main(void) {
          const double q[5] = {1.0471975511965976, -1.0471975511965976, 0, 1.0471975511965976, -1.0471975511965976};
          const double v[5] = {0};
          coordinated_robots_command out;
          const int status = coordinated_robots_law(0, 0, q, v, &out);
          printf("%d %d %d %g %g", status, out.bound_active[0], out.bound_active[1], out.bound_lack[0], out.u[0]);
          return 0;
        }"""
    )
    sources = [str(program), str(tmp_path / "coordinated_robots_law.c")]
    subprocess.run([str(CC), *STRICT, "-o", str(tmp_path / "start"), *sources, "-lm"], check=True)
    said = subprocess.run([str(tmp_path / "start")], capture_output=True, text=True, check=True).stdout.split()
    assert said[:4] == [str(Status.BOUNDED.code), "1", "0", "0"] and np.isfinite(float(said[4]))


@needs_compiler
@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_builds_and_tests_every_law_of_a_folder(tmp_path: Path) -> None:
    flags = f"CFLAGS={' '.join(STRICT)}"
    for name in ("two_mass_spring", "coordinated_robots"):
        write(exported(name).files, tmp_path)
    done = subprocess.run(["make", flags, f"CC={CC}"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    done = subprocess.run(["make", "-s", "test", flags, f"CC={CC}"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout.count(" passed, 0 failed"), done.stderr) == (0, 2, "")
    subprocess.run(["make", "-s", "clean"], cwd=tmp_path, check=True)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == ["", *4 * [".c"], ".h", ".h"]


@needs_compiler
def test_the_lines_of_the_header_build_and_call(tmp_path: Path) -> None:
    made = exported("two_mass_spring")
    write(made.files, tmp_path)
    header = made.files["two_mass_spring_law.h"]
    assert "if (two_mass_spring_law(0, t, q, v, &out) < TWO_MASS_SPRING_NOT_POSITIVE)" in header
    lines = re.findall(r"^  (?:Compile|Test): +(cc .*?)(?:, or make)?$", header, re.MULTILINE)
    assert len(lines) == 2
    for line in lines:
        done = subprocess.run(line.replace("cc ", f"{CC} ", 1), shell=True, cwd=tmp_path)
        assert done.returncode == 0


@needs_compiler
@pytest.mark.slow
def test_valgrind_finds_no_memory_error(tmp_path: Path) -> None:
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        pytest.skip("valgrind is not installed")
    program = built(exported("coordinated_robots_limited"), tmp_path, "-g", "-O1")
    assert passes(program, valgrind, "-q", "--error-exitcode=9", "--leak-check=full") == 31


@needs_compiler
def test_a_wrong_law_fails_its_test(tmp_path: Path) -> None:
    made = exported("two_mass_spring")
    law = made.files["two_mass_spring_law.c"].replace("out->u[i] = row[i]", "out->u[i] = row[i] * 1.00000001")
    program = built(dataclasses.replace(made, files=made.files | {"two_mass_spring_law.c": law}), tmp_path)
    done = subprocess.run([program], capture_output=True, text=True)
    assert done.returncode == 1
    assert "vector 0 differs" in done.stdout


@needs_compiler
@pytest.mark.parametrize("flag", ["-ffast-math", "-ffinite-math-only"])
def test_a_flag_that_hides_numbers_that_are_not_finite_is_refused(flag: str, tmp_path: Path) -> None:
    write(exported("two_mass_spring").files, tmp_path)
    law = str(tmp_path / "two_mass_spring_law.c")
    done = subprocess.run([str(CC), "-std=c99", "-fsyntax-only", flag, law], capture_output=True, text=True)
    assert done.returncode and "the law could not tell numbers that are not finite" in done.stderr


@pytest.mark.parametrize("name", CONFIGS)
def test_the_law_does_not_allocate_print_or_keep_state(name: str) -> None:
    law = exported(name).files[f"{name}_law.c"]
    assert not re.search(r"malloc|calloc|free\(|printf|stdio|stdlib|\bmem\b|casadi", law, re.IGNORECASE)
    assert not re.search(r"\bstatic (?!const |inline |void (f_\w+|[A-Z]+)\()", law)


def test_the_header_names_inputs_outputs_and_parameters_with_units() -> None:
    text = exported("coordinated_robots_limited").files["coordinated_robots_limited_law.h"]
    assert "q    theta1 [rad], theta2 [rad], theta3 [rad], theta4 [rad], theta5 [rad]" in text
    assert "v    theta1' [rad/s], theta2' [rad/s]" in text
    assert "double u[6]; /* u1 [N m], u2 [N m], u3 [N m], u4 [N m], u5 [N m], u6 [N m]; NaN if" in text
    assert "double correction_baumgarte_alpha[" in text and "[1/s] damping of the error; in order: " in text
    assert "double I; /* [kg m^2] inertia of a link about its centre; default 1 */" in text
    assert "double allocation_upper[6]; /* upper limit of an input; in order: u1 [N m]" in text
    assert "default 12, 12, 8.1, 12, 12, 7 */" in text
    assert (
        "COORDINATED_ROBOTS_LIMITED_SATURATED = 3, /* an input is at its limit and part of what the task asks" in text
    )


def test_parameters_without_influence_are_left_out_and_listed() -> None:
    text = exported("two_mass_spring").files["two_mass_spring_law.h"]
    assert "left out: law.passive_rank_tolerance, law.input_damping" in text
    assert "double upper" not in text
    assert "double allocation_rank_tolerance;" in text


def test_costs_include_called_functions() -> None:
    small, free, limited = (exported(name).cost for name in CONFIGS[:3])
    (called,) = load("two_mass_spring").loop.control_kernel.function.find_functions()  # type: ignore[attr-defined]
    assert called.name() == "decompose_1x1x0" and small.operations > decomposition_cost(1, 1).operations
    assert (small.operations, small.divisions, small.functions) == (168, 13, 0)
    assert free.functions == limited.functions == 12  # a sine and a cosine of five angles and of the time
    assert limited.operations > 20 * free.operations  # the search may take 32 steps
    assert exported("two_mass_spring").stack < 2500


@needs_compiler
@pytest.mark.parametrize("level", ["-O0", "-O2"])
def test_the_stack_is_not_understated(level: str, tmp_path: Path) -> None:
    made = exported("two_mass_spring")
    write(made.files, tmp_path)
    words = [str(CC), "-std=c99", level, "-fstack-usage", "-c", "two_mass_spring_law.c"]
    if subprocess.run(words, cwd=tmp_path, capture_output=True).returncode:
        pytest.skip("this compiler does not tell the stack it uses")
    lines = (tmp_path / "two_mass_spring_law.su").read_text().splitlines()
    chain = [line for line in lines if re.search(r":(f_|columns_|two_mass)", line)]  # each calls the next
    assert 200 < sum(int(line.split("\t")[1]) for line in chain) <= made.stack


def test_names_become_c_identifiers() -> None:
    assert identifier("my-arm.2") == "my_arm_2"
    assert identifier("2link") == "law_2link"
    assert [identifier(word) for word in ("register", "private", "linux", "M_PI")] == [
        "register_", "private_", "linux_", "M_PI_",
    ]  # fmt: skip
    taken = {"a_b"}
    assert identifier("a-b", taken) == "a_b_2"
    assert comment("2 */ 3 \u03b1") == "2 * / 3 ?"


PLANT = plant_text(
    "Cart", "m: tuple[float, ...] = (1.0, 2.0)  # [kg] masses; NAN: float = 5.0; register: float = 0.5  # [N s/m]",
    {"x": "m", "s": "m"}, {"F": "N"}, "np.array([[self.m[0] + self.m[1], self.m[1]], [self.m[1], self.m[1]]])",
    "FORCE", "np.array([[1.0], [0.0]])",
)  # fmt: skip
FORCE = "np.array([-self.register * v[0], -self.NAN * q[1]])"
CART = """
plant: {class: "cart.py:Cart"}
initial: {q: 0, v: 0}
task: [{name: follow, holonomic: "x - (1 - cos(t))"}]
law: {kind: constraint_following, correction: {baumgarte: {alpha: 10, beta: 10}}}
run: {duration: 0.5, integrator: {method: rk4, step: 0.001}}
"""


@pytest.fixture
def cart(tmp_path: Path) -> Path:
    (tmp_path / "cart.py").write_text(PLANT.replace("FORCE", FORCE))
    (tmp_path / "my-cart.yaml").write_text(CART)
    return tmp_path / "my-cart.yaml"


@needs_compiler
def test_an_inertia_beside_the_imaginary_unit_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "law.h").write_text(export(load("coordinated_robots")).files["coordinated_robots_law.h"])
    for lines, ends in (("", 1), ("#undef I\n", 0)):
        (tmp_path / "main.c").write_text(
            f'#include <complex.h>\n{lines}#include "law.h"\nint main(void) {{ return 0; }}\n'
        )
        done = subprocess.run(["cc", "-fsyntax-only", "main.c"], cwd=tmp_path, capture_output=True, text=True)
        assert (done.returncode, "undefine I before this header" in done.stderr) == (ends, bool(ends))


@needs_compiler
def test_a_users_plant_is_exported_under_names_that_c_accepts(cart: Path, tmp_path: Path) -> None:
    made = export(load(cart))
    assert list(made.files) == [
        "my_cart_law.h", "my_cart_law.c", "my_cart_law_test.c", "Makefile",
    ]  # fmt: skip
    text = made.files["my_cart_law.h"]
    assert "double m[2]; /* [kg] masses; default 1, 2 */" in text
    assert "double register_; /* [N s/m]; default 0.5 */" in text
    assert "double NAN_; /* [unit not stated]; default 5 */" in text
    assert passes(built(made, tmp_path / "out")) == 25


@dataclass(frozen=True)
class Integral(AttachedLaw):
    """A law with memory: what the task misses, summed up."""

    inner: AttachedLaw
    gain: float = 3.0

    @property
    def memory(self) -> Mapping[str, float]:
        return {"missed": 0.25}

    def memory_rate(self, terms: Terms, memory: Array, command: Command) -> Array:
        return terms.matrices.task.violation

    def command(self, terms: Terms, memory: Array) -> Command:
        command = self.inner.command(terms, memory)
        return dataclasses.replace(command, u=command.u - self.gain * memory[:1])


@dataclass(frozen=True)
class ErrorInverse(Integral):
    """A law with a function that C has not."""

    def command(self, terms: Terms, memory: Array) -> Command:
        command = self.inner.command(terms, memory)
        return dataclasses.replace(command, u=np.array([Symbol(ca.erfinv(command.u[0].sx))]))


def with_memory(kind: type[Integral] = Integral) -> Run:
    run = load("two_mass_spring")
    system = run.system
    assert system.law is not None
    law = kind(system.law.passive_rank_tolerance, system.law)
    return dataclasses.replace(run, loop=make_loop(System(system.model, law, {}, system.passive), "vm"))


@needs_compiler
def test_memory_is_an_argument_and_its_rate_an_output(tmp_path: Path) -> None:
    made = export(with_memory())
    text = made.files["two_mass_spring_law.h"]
    assert "memory_rate[1]; /* add elapsed time [s] times this to the memory */" in text
    assert "memory  missed = 0.25 at the start" in text
    assert passes(built(made, tmp_path)) == made.vectors + 5


def test_a_law_that_cannot_be_exported_is_refused_by_name(cart: Path) -> None:
    with pytest.raises(ConfigError, match=r"^projectile: law: none: there is no law to export"):
        export(load("projectile"))
    with pytest.raises(
        ConfigError, match=r"^two_mass_spring: law: cannot be exported, it is not compiled: it runs in NumPy"
    ):
        export(load("two_mass_spring", engine="numpy"))
    branch = "np.array([0.0, -self.k * q[1] if q[1] > 0 else 0.0])"
    (cart.parent / "cart.py").write_text(PLANT.replace("FORCE", branch))
    with pytest.raises(ConfigError, match=r"^my-cart: plant: cannot be exported, it cannot be compiled: .*truth"):
        export(load(cart))


def test_a_law_with_an_operation_without_c_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^two_mass_spring: law: cannot be exported: control: .*operation erfinv$"):
        export(with_memory(ErrorInverse))


@needs_compiler
def test_the_derivative_of_a_decomposition_has_c_without_loops(tmp_path: Path) -> None:
    """The slope of A^+ b along a matrix, which the engine leaves to the virtual machine."""
    t, x, p = ca.SX.sym("t"), ca.SX.sym("x", 6), ca.SX.sym("p", 2)
    Z = decompose_function(2, 3)(ca.reshape(x, 2, 3), 1e-6)[0]
    function = ca.Function("slope", [t, x, p], [ca.densify(ca.jtimes(ca.mtimes(Z.T, p), x, t * x + 1))])
    source = StandaloneSource(function)
    call = f"void call(const V *t, const V *x, const V *p, V *y) {{ {source.entry}(t, x, p, y); }}"
    (tmp_path / "slope.c").write_text("\n".join(["#include <math.h>", source.text, call]))
    words = [str(CC), *STRICT, "-O1", "-fPIC", "-shared", "-o", str(tmp_path / "slope.so"), str(tmp_path / "slope.c")]
    subprocess.run([*words, "-lm"], check=True)
    given = ([0.3], [1.0, 0.2, -0.4, 0.5, 0.1, 2.0], [0.7, -1.1])
    arrays = [np.array(values) for values in (*given, [0.0, 0.0, 0.0])]
    ctypes.CDLL(str(tmp_path / "slope.so")).call(*(ctypes.c_void_p(array.ctypes.data) for array in arrays))
    np.testing.assert_allclose(arrays[3], np.array(function(*given)).ravel(), rtol=1e-14)


def test_the_command_writes_its_files_and_prints_their_cost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "law"
    code = exit_code("export", "two_mass_spring", "--out", out, "--set", "plant.parameters.m1=1.5")
    printed = capsys.readouterr()
    assert (code, printed.err) == (0, "")
    names = [f"two_mass_spring_law{end}" for end in (".h", ".c", "_test.c")] + ["Makefile"]
    assert printed.out.splitlines()[:4] == [str(out / name) for name in names]
    assert sorted(path.name for path in out.iterdir()) == sorted(names)
    assert "at most 168 operations a call, of these 13 divisions and square roots" in printed.out
    assert "bytes of stack\n20 reference vectors\n" in printed.out
    assert printed.out.endswith("two_mass_spring_law.c -lm && ./two_mass_spring_law_test\n")
    assert "double m1; /* [kg] the driven mass; default 1.5 */" in (out / names[0]).read_text()


def test_json_carries_files_and_cost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("export", "two_mass_spring", "--out", tmp_path, "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["files"][0] == str(tmp_path / "two_mass_spring_law.h")
    assert printed["cost"]["operations"] == 168


def test_a_refusal_exits_with_2_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "projectile", "--out", str(tmp_path / "law")]) == 2
    assert "there is no law to export" in capsys.readouterr().err
    assert not (tmp_path / "law").exists()


def texts(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_a_file_that_is_there_is_replaced_only_with_force(tmp_path: Path) -> None:
    made = exported("two_mass_spring").files
    write(made, tmp_path)
    write(made, tmp_path)  # the same again changes nothing
    before = texts(tmp_path)
    other = {name: text + "\n" for name, text in made.items()}
    with pytest.raises(ConfigError, match=r"two_mass_spring_law.h: is there already \(choose") as refused:
        write(other, tmp_path)
    assert len(refused.value.problems) == 4
    assert texts(tmp_path) == before == made
    write(other, tmp_path, force=True)
    assert texts(tmp_path) == other


def test_an_out_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "law").write_text("")
    with pytest.raises(ConfigError, match=r"^--out: .*law.*: cannot be written"):
        write(exported("two_mass_spring").files, tmp_path / "law")


def test_the_vectors_cover_other_parameters() -> None:
    text = exported("two_mass_spring").files["two_mass_spring_law_test.c"]
    rows = re.findall(r"^  \{\{\{([^}]*)\}", text, re.MULTILINE)
    assert len(rows) == 20
    assert rows[0] == rows[2] == "1.0, 2.0, 10.0, 0.5"
    assert len(set(rows)) == 11  # the config's own, and ten others


ESTIMATED = (
    "run.period=0.001", "run.output_step=0.001", "run.duration=0.2", "realism.delay=0.001", "realism.measured=q",
    "realism.quantisation.q=2*pi/65536", "realism.parameter_error.m1=0.3",
    "estimation.kind=model",
)  # fmt: skip


@needs_compiler
def test_a_law_with_an_estimator_passes_its_own_test(tmp_path: Path) -> None:
    run = load("two_mass_spring", ESTIMATED, "vm")
    made = export(run)
    assert "const double *v" not in made.files["two_mass_spring_law.h"]
    assert passes(built(made, tmp_path, "-O2")) >= 10 + 1 + len(run.loop.memory_names)


def law_in_c(run: Run, folder: Path) -> tuple[Any, Any]:
    """The exported law as a function of pointers, and room for its answer."""
    write(export(run).files, folder)
    library, name = folder / "law.so", "two_mass_spring_law"
    subprocess.run(
        [str(CC), "-O2", "-ffp-contract=off", "-shared", "-fPIC", "-o", library, f"{name}.c", "-lm"],
        cwd=folder, check=True,
    )  # fmt: skip

    class Answer(ctypes.Structure):
        _fields_ = (
            ("u", ctypes.c_double * 1), ("rank", ctypes.c_int), ("residual", ctypes.c_double),
            ("pivot", ctypes.c_double), ("status", ctypes.c_int),
            ("memory_rate", ctypes.c_double * len(run.loop.memory_names)),
        )  # fmt: skip

    function, out = getattr(ctypes.CDLL(str(library)), name), Answer()

    def law(t: float, *arrays: Array) -> int:
        pointers = (x.ctypes.data_as(ctypes.POINTER(ctypes.c_double)) for x in arrays)
        return int(function(None, ctypes.c_double(t), *pointers, ctypes.byref(out)))

    return law, out


@needs_compiler
def test_a_law_with_an_estimator_repeats_a_run_from_positions_alone(tmp_path: Path) -> None:
    """Measured positions go in, the commands of the run come out, within the last digits."""
    run = load("two_mass_spring", ESTIMATED, "vm")
    law, out = law_in_c(run, tmp_path)
    logged, realism = run.simulate(), run.system.realism
    assert realism is not None
    memory, largest = run.loop.memory_start.copy(), 0.0
    late = logged.u[1:]  # the drive makes each command one period later
    rows = zip(logged.t[:-1], logged.q, logged.v, late, logged["status"], strict=False)
    for t, q, v, u, status in rows:
        seen = np.ascontiguousarray(realism.measured(np.hstack([q, v]), np.zeros(2 * len(q) + 1))[: len(q)])
        assert law(t, seen, memory) == status
        largest = max(largest, abs(out.u[0] - u[0]))
        memory += 0.001 * np.array(out.memory_rate)
    assert np.abs(logged.u).max() > 1.0
    assert largest < 1e-12 * np.abs(logged.u).max()


@needs_compiler
def test_a_law_with_an_observer_keeps_the_commands_under_way_as_its_header_says(tmp_path: Path) -> None:
    """The period times the rate gives the memory of a run, and a torque that the drive got counts."""
    changes = ["run.period=0.001", "run.output_step=0.001", "run.duration=0.1", "realism.delay=0.0015"]
    run = load("two_mass_spring", [*changes, "law.observer=auto", "realism.parameter_error.m1=0.3"], "vm")
    law, out = law_in_c(run, tmp_path)
    header = (tmp_path / "two_mass_spring_law.h").read_text()
    assert "Call the law every 0.001 s; after each call add 0.001 times memory_rate to the memory." in header
    assert "the drives really got into commands.sent1" in header and "add 0.001 s times this" in header
    names, logged = run.loop.memory_names, run.simulate()
    kept, memory = np.column_stack([logged[f"memory.{name}"] for name in names]), run.loop.memory_start.copy()
    for k in range(len(logged.t) - 1):
        np.testing.assert_allclose(memory, kept[k], rtol=0, atol=1e-9 * np.abs(kept).max())
        law(float(logged.t[k]), logged.q[k].copy(), logged.v[k].copy(), memory)
        memory = memory + 0.001 * np.array(out.memory_rate)
    # a drive that got 1 N more than asked: half of it acts within the next period, and is no disturbance then
    expected, sent = (
        next(i for i, name in enumerate(names) if name.startswith(part)) for part in ("exp", "commands.s")
    )
    after = []
    for more in (0.0, 1.0):
        given = memory + more * (np.arange(len(names)) == sent)
        law(float(logged.t[-1]), logged.q[-1].copy(), logged.v[-1].copy(), given)
        after.append(given[expected] + 0.001 * out.memory_rate[expected])
    T = evaluate(run, float(logged.t[-1]), logged.q[-1], logged.v[-1])["T"][0, 0]
    assert after[1] - after[0] == pytest.approx(0.5 * T, rel=1e-6)


def test_friction_and_rotors_of_a_config_have_their_units_in_the_header() -> None:
    sets = ["plant.friction={coulomb: 0.3, viscous: 0.1}", "plant.armature=0.2"]
    run = load("two_mass_spring", sets, engine="vm")
    remarks = {member.name: member.remark for member in _members(run.loop)}  # type: ignore[arg-type]
    assert remarks["friction_coulomb"] == "dry friction; in order: F [N]"
    assert remarks["friction_viscous"] == "friction per speed; in order: F [N s/m]"
    assert remarks["armature"].endswith("F [N s^2/m]")
