"""Config -> YAML that loads back to the same config."""

import re
from typing import Any

import yaml

from servoctl.config.schema import Config
from servoctl.config.yaml_loader import CORE, PREFIX


class _Dumper(yaml.SafeDumper):
    """Quotes text that YAML 1.1 or YAML 1.2 could read as something else."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_str(self, data: str) -> yaml.ScalarNode:
        style = '"' if _LINE_BREAKS.search(data) else None
        return self.represent_scalar(PREFIX + "str", data, style=style)


_LINE_BREAKS = re.compile("[\x85\u2028\u2029]")
"""Line breaks that PyYAML reads back differently, unless they are in double quotes."""

_Dumper.add_representer(str, _Dumper.represent_str)
for _kind in CORE[:-1]:
    _Dumper.add_implicit_resolver(_kind.tag, _kind.pattern, list(_kind.first))


def dump(config: Config) -> str:
    """YAML of the config as it ran: with all defaults, with evaluated numbers, without fields that are None."""
    values = config.model_dump(mode="json", by_alias=True, exclude_none=True)
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000)
