"""Puts the links and joints of a file in the order of a tree, or says why they are none."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from servoctl.expression.suggest import remedy
from servoctl.mechanics.spatial.description import Findings, JointDescription, LinkDescription

Ordered = tuple[list[LinkDescription], list[JointDescription]]


def in_order(links: Sequence[LinkDescription], joints: Sequence[JointDescription], findings: Findings) -> Ordered:
    """Links with the root first, and joints with parents before children: branch by branch, in the file's order."""
    names = dict.fromkeys(link.name for link in links)
    _check_names(links, joints, findings)
    for joint in joints:
        for tag, link in (("parent", joint.parent), ("child", joint.child)):
            if link and link not in names:
                findings.problem(f"joint '{joint.name}'", f"{tag}: there is no link '{link}' ({remedy(link, names)})")
        if joint.parent and joint.parent == joint.child:
            findings.problem(f"joint '{joint.name}'", f"parent and child are the same link, '{joint.child}'")
    _check_mimics(joints, findings)
    carrier = _carriers(joints, findings)
    roots = [name for name in names if name not in carrier]
    if len(roots) > 1:
        listed = ", ".join(f"'{name}'" for name in roots)
        findings.problem(f"link {listed}", f"{len(roots)} links are no joint's child (join them by a fixed joint)")
    ordered = _walk(roots, joints)
    _check_cycles(set(names) - {joint.child for joint in ordered} - set(roots), carrier, findings)
    known = {link.name: link for link in links}
    return [known[name] for name in [*roots, *(joint.child for joint in ordered)] if name in known], ordered


def _check_names(links: Sequence[LinkDescription], joints: Sequence[JointDescription], findings: Findings) -> None:
    for what, names in (("link", [link.name for link in links]), ("joint", [joint.name for joint in joints])):
        for name, count in Counter(names).items():
            if count > 1:
                findings.problem(f"{what} '{name}'", f"{count} {what}s have this name (names must differ)")
    if not links:
        findings.problem("", "the file has no <link>")


def _carriers(joints: Sequence[JointDescription], findings: Findings) -> dict[str, JointDescription]:
    """Link -> the joint whose child it is."""
    by_child: dict[str, list[JointDescription]] = defaultdict(list)
    for joint in joints:
        if joint.child:
            by_child[joint.child].append(joint)
    for child, several in by_child.items():
        if len(several) > 1:
            listed = " and ".join(f"'{joint.name}'" for joint in several)
            what = f"it is the child of {len(several)} joints, {listed}"
            findings.problem(
                f"link '{child}'", f"{what} (a URDF is a tree: cut link '{child}' and close it with `loops`)"
            )
    return {child: several[0] for child, several in by_child.items()}


def _walk(roots: Sequence[str], joints: Sequence[JointDescription]) -> list[JointDescription]:
    """The joints that the roots reach, each once."""
    leaving: dict[str, list[JointDescription]] = defaultdict(list)
    for joint in joints:
        leaving[joint.parent].append(joint)
    ordered: list[JointDescription] = []
    waiting = [joint for root in reversed(roots) for joint in reversed(leaving[root])]
    reached = set(roots)
    while waiting:
        joint = waiting.pop()
        if joint.child not in reached:
            reached.add(joint.child)
            ordered.append(joint)
            waiting += reversed(leaving[joint.child])
    return ordered


def _check_cycles(unreached: set[str], carrier: dict[str, JointDescription], findings: Findings) -> None:
    """Reports each closed chain of links once; links that hang on one are not reported."""
    seen: set[str] = set()
    for start in sorted(unreached):
        chain, link = [], start
        while link in carrier and link not in seen:
            seen.add(link)
            chain.append(link)
            link = carrier[link].parent
        if link in chain and len(chain) - chain.index(link) > 1:
            loop = " -> ".join(reversed([*chain[chain.index(link) :], link]))
            findings.problem(
                f"link '{link}'",
                f"it carries itself, {loop} (a URDF is a tree: cut link '{link}' and close it with `loops`)",
            )


def _check_mimics(joints: Sequence[JointDescription], findings: Findings) -> None:
    known = {joint.name: joint for joint in joints}
    for joint in joints:
        if joint.mimic is None:
            continue
        where, followed = f"joint '{joint.name}'", known.get(joint.mimic)
        if followed is None:
            free = [other.name for other in joints if other.kind != "fixed" and other is not joint]
            findings.problem(where, f"mimic: there is no joint '{joint.mimic}' ({remedy(joint.mimic, free)})")
        elif followed.kind == "fixed":
            findings.problem(where, f"mimic: joint '{joint.mimic}' is fixed (make joint '{joint.name}' fixed too)")
        elif (cycle := _mimic_cycle(joint, known)) and joint.name == min(cycle):
            chain = " -> ".join([joint.name, *cycle])
            what = "the joint follows itself" if len(cycle) == 1 else f"the joints follow each other, {chain}"
            findings.problem(where, f"mimic: {what} (one joint must be free)")


def _mimic_cycle(joint: JointDescription, known: dict[str, JointDescription]) -> list[str]:
    """The joints that are followed in turn until `joint` is met again; empty if it is not met."""
    chain: list[str] = []
    at: JointDescription | None = joint
    while at is not None and at.mimic is not None and at.mimic not in chain:
        chain.append(at.mimic)
        at = known.get(at.mimic)
    return chain if joint.name in chain[-1:] else []
