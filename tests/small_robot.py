"""A small robot for fast tests: two joints about y with links of 0.4 m and 0.3 m, and a tool."""

LINK = """
  <link name="{name}">
    <inertial>
      <origin xyz="{half} 0 0"/>
      <mass value="{mass}"/>
      <inertia ixx="0.002" iyy="0.02" izz="0.02" ixy="0" ixz="0" iyz="0"/>
    </inertial>
  </link>"""
JOINT = """
  <joint name="{name}" type="revolute">
    <parent link="{parent}"/><child link="{child}"/>
    <origin xyz="{x} 0 0"/>
    <axis xyz="0 -1 0"/>
    <limit lower="{lower}" upper="{upper}" velocity="3" effort="{effort}"/>
  </joint>"""


def small_urdf(effort: float = 40.0, lower: float = 0.2, prefix: str = "") -> str:
    """The file; `effort` and `lower` are of the second joint, `prefix` is before the names of both joints."""
    return (
        '<robot name="small">\n'
        + LINK.format(name="ground", half=0, mass=5)
        + LINK.format(name="upper", half=0.2, mass=2)
        + LINK.format(name="fore", half=0.15, mass=1)
        + '\n  <link name="tool"/>'
        + JOINT.format(name=f"{prefix}shoulder", parent="ground", child="upper", x=0, lower=-3, upper=3, effort=60)
        + JOINT.format(
            name=f"{prefix}elbow", parent="upper", child="fore", x=0.4, lower=lower, upper=2.8, effort=effort
        )
        + '\n  <joint name="mount" type="fixed"><parent link="fore"/><child link="tool"/>'
        + '<origin xyz="0.3 0 0"/></joint>\n</robot>\n'
    )


SMALL = """\
plant: {robot: {urdf: files/small.urdf}}
initial: {q: {shoulder: -0.4, elbow: 1.2}}
task:
  - {name: height, distance: [tool, [0, 0, 1]], value: 0.9, correction: {baumgarte: {alpha: 8, beta: 8}}}
  - {name: rest, posture: initial, priority: 2, correction: {baumgarte: {alpha: 8, beta: 8}}}
law: {limits: robot}
run: {duration: 0.1, integrator: {step: 0.005}}
"""
"""A config for `files/small.urdf`."""
