"""Job file -> JobSpec: the keys of the file are the fields of the message.

Six things are shorter in a file than in a message: values of enums have no prefix
(`mixed_bfloat16` is POLICY_MIXED_BFLOAT16), a list whose absence means something is a plain list,
such a list of one number may be the number alone, options of a model stand beside its name, and
what rules.proto says of a field: `alone` (`continue: j0001`), `by_name` (`env: {A: b}`).
Layers of one's own are for ringctl, which writes blocks and repetitions out; so are scripts, whose
files it sends along.
"""
import re

import yaml
from google.protobuf import json_format

ERRORS = (OSError, ValueError, yaml.YAMLError, json_format.ParseError)  # of read(); each says what


def _enum_name(enum, value):
    prefix = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", enum.name).upper()
    return f"{prefix}_{str(value).upper()}"


def _is_list(message):
    return [field.name for field in message.fields] == ["values"]


def _rules(field):
    """What rules.proto says of it."""
    for option, rules in field.GetOptions().ListFields():
        if option.full_name == "ringmaster.v1.rules":
            return rules
    return None


def _says(field, rule):
    rules = _rules(field)
    return rules is not None and getattr(rules, rule)


def _list_as_json(value, field):
    if _says(field, "by_name"):
        if not isinstance(value, dict):
            raise ValueError(f"{field.name}: expected a mapping, got {value!r}")
        name, part = field.message_type.fields
        return [{name.name: str(key), part.name: _as_json(one, part)} for key, one in value.items()]
    if not isinstance(value, list):
        raise ValueError(f"{field.name}: expected a list, got {value!r}")
    return [_as_json(one, field) for one in value]


def _as_json(value, field):
    """One value of `field` in protobuf's JSON form."""
    if field.message_type is not None:
        return _message_as_json(value, field.message_type)
    if field.enum_type is not None:
        return _enum_name(field.enum_type, value)
    if field.cpp_type == field.CPPTYPE_DOUBLE and isinstance(value, str):
        return float(value)  # YAML 1.1 takes 1e-3 for a string
    return value


def _option(name, value):
    """An option of a model: what it is follows from its value."""
    if isinstance(value, bool):
        return {"name": name, "b": value}
    if isinstance(value, (int, float)):
        return {"name": name, "i" if isinstance(value, int) else "f": value}
    return {"name": name, "ints": {"values": value}} if isinstance(value, list) else {"name": name, "s": value}


def _model_as_json(value):
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise ValueError(f"expected a model with a name, got {value!r}")
    options = [_option(key, item) for key, item in value.items() if key != "name"]
    return {"name": value["name"], "options": options}


def _message_as_json(value, message):
    if message.name == "Model":
        return _model_as_json(value)
    if _is_list(message) and not isinstance(value, dict):
        return {"values": value if isinstance(value, list) else [value]}
    alone = next((field for field in message.fields if _says(field, "alone")), None)
    if alone is not None and value is not None and not isinstance(value, (dict, list)):
        return {alone.name: _as_json(value, alone)}
    if not isinstance(value, dict):
        raise ValueError(f"expected a mapping with keys of {message.name}, got {value!r}")
    result = {}
    for key, item in value.items():
        field = message.fields_by_name.get(key)
        if field is None or _says(field, "no_key"):
            known = ", ".join(each.name for each in message.fields if not _says(each, "no_key"))
            raise ValueError(f"unknown key {key!r}; expected one of {known}")
        repeated = field.label == field.LABEL_REPEATED
        result[key] = _list_as_json(item, field) if repeated else _as_json(item, field)
    return result


def read(path, spec):
    """`spec`, a JobSpec, filled from the file; ERRORS are raised."""
    with open(path, encoding="utf-8") as file:
        tree = yaml.safe_load(file)
    return json_format.ParseDict(_message_as_json(tree, spec.DESCRIPTOR), spec)
