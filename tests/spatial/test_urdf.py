"""The URDF reader: what it reads, and the sentence for every file that it refuses."""

import random
from pathlib import Path

import numpy as np
import pytest

from servoctl.errors import ConfigError
from servoctl.mechanics.spatial.description import Description, Shape
from servoctl.mechanics.spatial.placement import Placement
from servoctl.mechanics.spatial.urdf import read_urdf
from tests.refused import table

LINKS = '<link name="a"/><link name="b"/>'
JOINT = '<joint name="j" type="{type}"><parent link="a"/><child link="b"/>{inside}</joint>'
LIMIT = '<limit lower="-1" upper="2" velocity="3" effort="40"/>'

TWO_FINGERS = """<?xml version="1.0"?>
<robot name="hand">
  <material name="grey"><color rgba="0.5 0.5 0.5 1"/></material>
  <link name="finger">
    <inertial><mass value="0.2"/><inertia ixx="1e-4" iyy="1e-4" izz="1e-5"/></inertial>
  </link>
  <link name="palm">
    <inertial>
      <origin xyz="0 0 0.05" rpy="0 0 1.5707963267948966"/>
      <mass value="1.5"/>
      <inertia ixx="0.01" ixy="0.001" ixz="0" iyy="0.02" iyz="0.002" izz="0.015"/>
    </inertial>
    <visual><origin xyz="0 0 0.1"/><geometry><box size="0.1 0.2 0.3"/></geometry></visual>
    <visual><geometry><cylinder radius="0.05" length="0.4"/></geometry></visual>
    <visual><geometry><sphere radius="0.06"/></geometry></visual>
    <collision><geometry><capsule radius="wrong"/></geometry></collision>
  </link>
  <link name="thumb"/>
  <link name="nail"/>
  <joint name="tip" type="fixed"><parent link="thumb"/><child link="nail"/><origin xyz="0 0 0.02"/></joint>
  <joint name="opening" type="prismatic">
    <parent link="palm"/><child link="finger"/>
    <origin xyz="0 0.1 0" rpy="0.1 0.2 0.3"/>
    <axis xyz="0 3 4"/>
    <limit lower="0" upper="0.04" velocity="0.2" effort="20"/>
    <dynamics damping="0.7" friction="0.3"/>
  </joint>
  <joint name="closing" type="prismatic">
    <parent link="palm"/><child link="thumb"/>
    <axis xyz="0 -1 0"/>
    <limit lower="0" upper="0.04" velocity="0.2" effort="20"/>
    <mimic joint="opening" multiplier="-2" offset="0.01"/>
  </joint>
  <transmission name="t"><type>simple</type></transmission>
  <gazebo reference="palm"><sensor name="s"/></gazebo>
</robot>
"""


def written(folder: Path, content: str | bytes, name: str = "robot.urdf") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def robot(inside: str) -> str:
    return f'<robot name="r">{inside}</robot>'


def jointed(type: str = "revolute", inside: str = LIMIT, links: str = LINKS) -> str:
    return robot(links + JOINT.format(type=type, inside=inside))


def read(folder: Path, content: str | bytes) -> Description:
    return read_urdf(written(folder, content))


def problems(folder: Path, content: str | bytes) -> list[str]:
    """The problems of a file, without its path."""
    path = written(folder, content)
    with pytest.raises(ConfigError) as error:
        read_urdf(path)
    assert all(problem.startswith(f"{path}: ") for problem in error.value.problems)
    return [problem.removeprefix(f"{path}: ") for problem in error.value.problems]


def test_a_hand_is_read_with_the_root_first_and_parents_before_children(tmp_path: Path) -> None:
    hand = read(tmp_path, TWO_FINGERS)
    assert hand.name == "hand"
    assert [link.name for link in hand.links] == ["palm", "finger", "thumb", "nail"]
    assert [joint.name for joint in hand.joints] == ["opening", "closing", "tip"]
    opening, closing, tip = hand.joints
    assert (opening.kind, opening.parent, opening.child) == ("prismatic", "palm", "finger")
    assert opening.placement == Placement.at((0, 0.1, 0), (0.1, 0.2, 0.3))
    assert opening.axis == (0.0, 0.6, 0.8)
    assert (opening.lower, opening.upper, opening.velocity, opening.effort) == (0.0, 0.04, 0.2, (-20.0, 20.0))
    assert (opening.damping, opening.friction) == (0.7, 0.3)
    assert (closing.mimic, closing.multiplier, closing.offset) == ("opening", -2.0, 0.01)
    assert (tip.kind, tip.placement.xyz) == ("fixed", (0.0, 0.0, 0.02))


def test_the_inertia_is_turned_into_link_axes(tmp_path: Path) -> None:
    inertial = read(tmp_path, TWO_FINGERS).links[0].inertial
    assert inertial is not None
    assert (inertial.m, inertial.com) == (1.5, (0.0, 0.0, 0.05))
    # a quarter turn about z: x -> y, y -> -x
    np.testing.assert_allclose(inertial.I, [0.02, 0.01, 0.015, -0.001, -0.002, 0.0], atol=1e-16)


def test_the_primitives_of_visuals_are_read(tmp_path: Path) -> None:
    box, cylinder, sphere = read(tmp_path, TWO_FINGERS).links[0].shapes
    assert box == Shape("box", (0.1, 0.2, 0.3), Placement.at((0, 0, 0.1)))
    assert cylinder == Shape("cylinder", (0.05, 0.4), Placement())
    assert sphere == Shape("sphere", (0.06,), Placement())


def test_the_friction_of_a_joint_is_read(tmp_path: Path) -> None:
    description = read(tmp_path, TWO_FINGERS)
    assert ([joint.friction for joint in description.joints][:1], description.notes) == ([0.3], ())


def test_what_a_joint_leaves_out_has_the_defaults_of_the_format(tmp_path: Path) -> None:
    joint = read(tmp_path, jointed("continuous", "")).joints[0]
    assert (joint.axis, joint.placement, joint.mimic) == ((1.0, 0.0, 0.0), Placement(), None)
    assert (joint.lower, joint.upper, joint.velocity, joint.effort) == (None, None, None, None)


def test_a_robot_without_a_name_is_named_after_its_file(tmp_path: Path) -> None:
    assert read_urdf(written(tmp_path, '<robot><link name="a"/></robot>', "crane.urdf")).name == "crane"


def test_a_default_namespace_changes_nothing(tmp_path: Path) -> None:
    named = TWO_FINGERS.replace("<robot ", '<robot xmlns="http://www.ros.org" xmlns:xacro="http://wiki.ros.org/xacro" ')
    assert read(tmp_path, named) == read(tmp_path, TWO_FINGERS)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "iso-8859-1"])
def test_other_encodings_of_text_are_read(tmp_path: Path, encoding: str) -> None:
    declaration = '<?xml version="1.0" encoding="iso-8859-1"?>' if encoding == "iso-8859-1" else ""
    content = (declaration + robot('<link name="Größe"/>')).encode(encoding)
    assert read(tmp_path, content).links[0].name == "Größe"


def test_a_comment_may_mention_xacro(tmp_path: Path) -> None:
    comment = '<!-- autogenerated by xacro from <xacro:include filename="$(find arm)/arm.xacro"/> -->'
    assert read(tmp_path, comment + TWO_FINGERS.partition("?>")[2]).name == "hand"


def test_a_path_without_a_readable_file_is_refused(tmp_path: Path) -> None:
    for path, what in {
        tmp_path: "it is a folder (expected an XML file)",
        tmp_path / "none.urdf": "there is no such file",
        Path("/dev/null"): "it is not a regular file (expected an XML file)",
        written(tmp_path, "<robot/>") / "inside": "it cannot be read: Not a directory",
    }.items():
        with pytest.raises(ConfigError) as error:
            read_urdf(path)
        assert error.value.problems == [f"{path}: {what}"]


def test_a_path_with_a_null_character_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^'a\\x00b': it cannot be read: .*embedded null"):
        read_urdf("a\0b")


def chain(*pairs: str, links: str = "abc") -> str:
    """A robot of one-letter links, and continuous joints named by parent and child."""
    joints = [
        f'<joint name="{pair}" type="continuous"><parent link="{pair[0]}"/><child link="{pair[1]}"/></joint>'
        for pair in pairs
    ]
    return robot("".join([*(f'<link name="{name}"/>' for name in links), *joints]))


def inertial(inside: str) -> str:
    return robot(f'<link name="a"><inertial>{inside}</inertial></link>')


def shaped(inside: str) -> str:
    return robot(f'<link name="a"><visual><geometry>{inside}</geometry></visual></link>')


@pytest.mark.parametrize(("content", "expected"), [(*words, said) for _, words, said in table("urdf")])
def test_a_wrong_file_is_refused_in_a_sentence_for_each_mistake(
    tmp_path: Path, content: str, expected: list[str]
) -> None:
    if expected:
        assert problems(tmp_path, eval(content)) == expected
    else:
        read(tmp_path, eval(content))


@pytest.mark.parametrize(("content", "notes"), [(*words, tuple(said)) for _, words, said in table("urdf_notes")])
def test_what_runs_all_the_same_is_a_note(tmp_path: Path, content: str, notes: tuple[str, ...]) -> None:
    assert read(tmp_path, eval(content)).notes == notes


def test_joints_that_follow_each_other_are_refused_once(tmp_path: Path) -> None:
    follow = chain("ab", "ac", "cd", links="abcd")
    for name, other in {"ab": "cd", "ac": "ab", "cd": "ac"}.items():
        opening = f'<joint name="{name}" type="continuous">'
        follow = follow.replace(opening, f'{opening}<mimic joint="{other}"/>')
    assert problems(tmp_path, follow) == [
        "joint 'ab': mimic: the joints follow each other, ab -> cd -> ac -> ab (one joint must be free)"
    ]


BODIES = {
    ("1", "1 1 2.1"): (
        "no rigid body has this inertia: its principal moments are 1, 1, 2.1 kg m^2 "
        "(the largest may be at most the sum of the others)"
    ),
    ("1", "-1 1 1"): (
        "no rigid body has this inertia: its principal moments are -1, 1, 1 kg m^2 (none may be negative)"
    ),
    ("0", "1 1 1"): "inertia without mass (give it a mass)",
}


@pytest.mark.parametrize(("mass", "moments"), BODIES)
def test_an_inertia_that_no_body_has_is_a_note(tmp_path: Path, mass: str, moments: str) -> None:
    xx, yy, zz = moments.split()
    inertial = f'<mass value="{mass}"/><inertia ixx="{xx}" iyy="{yy}" izz="{zz}"/>'
    described = read(tmp_path, robot(f'<link name="a"><inertial>{inertial}</inertial></link>'))
    assert described.notes == (f"a: {BODIES[mass, moments]}",)
    assert described.links[0].inertial is not None
    np.testing.assert_array_equal(described.links[0].inertial.I, [float(xx), float(yy), float(zz), 0, 0, 0])


def test_an_inertial_of_zeros_is_none(tmp_path: Path) -> None:
    inertial = '<mass value="0"/><inertia ixx="0" iyy="0" izz="0"/>'
    described = read(tmp_path, robot(f'<link name="a"><inertial>{inertial}</inertial></link>'))
    assert (described.links[0].inertial, described.notes) == (None, ())


def meshed(address: str) -> str:
    return robot(
        f'<link name="a"><visual><geometry><mesh filename="{address}" scale="2 2 2"/></geometry></visual></link>'
    )


def test_a_missing_mesh_is_a_note(tmp_path: Path) -> None:
    for address in ("package://arm/a.stl", "a.stl", "file:///nowhere/a.stl", "http://example.org/a.stl", "x" * 5000):
        described = read(tmp_path, meshed(address))
        assert described.notes == (f"link 'a': the mesh {address} is not found: it is not drawn",)
        assert described.links[0].shapes == (Shape("mesh", (2.0, 2.0, 2.0), Placement()),)


def test_a_mesh_of_another_format_is_a_note(tmp_path: Path) -> None:
    (tmp_path / "a.dae").touch()
    described = read(tmp_path, meshed("a.dae"))
    assert described.notes == ("link 'a': the mesh a.dae is no STL file: it is not drawn",)
    (tmp_path / "a.STL").touch()
    assert read(tmp_path, meshed("a.STL")).notes == ()


def test_a_mesh_of_a_package_is_found_above_the_file_and_in_ros_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "checkout" / "arm" / "urdf").mkdir(parents=True)
    file = written(tmp_path / "checkout" / "arm" / "urdf", meshed("package://arm/meshes/a.stl"))
    one, two = tmp_path / "one", tmp_path / "two"
    places = [
        tmp_path / "checkout" / "arm" / "meshes",
        one / "arm" / "meshes",
        two / "share" / "arm" / "meshes",
    ]
    monkeypatch.setenv("ROS_PACKAGE_PATH", f"/nowhere:{one}")
    monkeypatch.setenv("AMENT_PREFIX_PATH", str(two))
    for place in places:
        place.mkdir(parents=True)
        (place / "a.stl").touch()
        assert read_urdf(file).links[0].shapes[0].file == place / "a.stl"
        (place / "a.stl").unlink()


def test_a_long_chain_is_read_without_recursion(tmp_path: Path) -> None:
    links = "".join(f'<link name="l{i}"/>' for i in range(1000))
    joints = "".join(
        f'<joint name="j{i}" type="fixed"><parent link="l{i}"/><child link="l{i + 1}"/></joint>' for i in range(999)
    )
    assert len(read(tmp_path, robot(joints + links)).joints) == 999


def mutated(text: str, chance: random.Random) -> bytes:
    """The text with some parts deleted, repeated, exchanged or replaced by other bytes."""
    content = bytearray(text.encode())
    for _ in range(chance.randint(1, 4)):
        at, length = chance.randrange(len(content)), chance.choice([1, 1, 2, 5, 20, 100])
        match chance.randrange(4):
            case 0:
                del content[at : at + length]
            case 1:
                content[at:at] = content[at : at + length]
            case 2:
                content[at : at + 1] = bytes([chance.randrange(256)])
            case 3:
                words = [
                    b"0",
                    b"-1",
                    b"nan",
                    b"1e400",
                    b'"',
                    b"/>",
                    b"<link/>",
                    b"fixed",
                    b"palm",
                    b"",
                    b"&#0;",
                    b"x y",
                ]
                content[at : at + length] = chance.choice(words)
    return bytes(content)


def test_a_mutated_file_is_read_or_refused_in_sentences(tmp_path: Path) -> None:
    chance, refused = random.Random(1), 0
    for _ in range(1500):
        path = written(tmp_path, mutated(TWO_FINGERS, chance))
        try:
            described = read_urdf(path)
        except ConfigError as error:
            refused += 1
            assert error.problems and all(problem.startswith(f"{path}: ") for problem in error.problems)
        else:
            assert len(described.links) == len(described.joints) + 1
    assert 750 < refused < 1500
