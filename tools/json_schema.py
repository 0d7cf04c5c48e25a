#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Check JSON files against a schema of docs/schema, with Python's own library alone.

usage: json_schema.py SCHEMA.json FILE.json ...
exit 0 all are valid, 1 with a line "file: key.path: why" for each fault, 2 the schema itself is not understood

Understands what the project's schemas use; a keyword it does not know is an error, so that no rule is passed over in silence.
"schema" must be the first key of every file, which JSON Schema cannot say.
"""
import json
import re
import sys

NOTES = {"$schema", "$defs", "title", "description", "default", "examples"}
TYPES = {
    "object": lambda v: isinstance(v, dict),
    "array": lambda v: isinstance(v, list),
    "string": lambda v: isinstance(v, str),
    "boolean": lambda v: isinstance(v, bool),
    "null": lambda v: v is None,
    "number": lambda v: isinstance(v, (int, float)) and not isinstance(v, bool),
    "integer": lambda v: isinstance(v, int) and not isinstance(v, bool) or isinstance(v, float) and v.is_integer(),
}


class SchemaError(Exception):
    pass


def equal(a, b):
    """As JSON values: true is not 1."""
    return isinstance(a, bool) == isinstance(b, bool) and a == b


def is_type(value, types):
    return any(TYPES[name](value) for name in ([types] if isinstance(types, str) else types))


def resolve(root, reference):
    if not reference.startswith("#/"):
        raise SchemaError(f"$ref {reference}: only #/... is understood")
    for step in reference[2:].split("/"):
        root = root[step]
    return root


def valid(value, schema, root):
    return not list(faults(value, schema, root, ""))


def object_faults(value, schema, root, path):
    known = schema.get("properties", {})
    patterns = schema.get("patternProperties", {})
    for key in schema.get("required", []):
        if key not in value:
            yield path, f"the key {key} is missing"
    for key, member in value.items():
        here = f"{path}.{key}" if path else key
        rules = [known[key]] if key in known else []
        rules += [rule for pattern, rule in patterns.items() if re.search(pattern, key)]
        if not rules:
            rules = [schema.get("additionalProperties", True)]
            if rules == [False]:
                yield here, "the key is not allowed"
                continue
        if "propertyNames" in schema:
            yield from faults(key, schema["propertyNames"], root, here)
        for rule in rules:
            yield from faults(member, rule, root, here)


def array_faults(value, schema, root, path):
    if len(value) < schema.get("minItems", 0):
        yield path, f"{len(value)} items, at least {schema['minItems']} are needed"
    if len(value) > schema.get("maxItems", len(value)):
        yield path, f"{len(value)} items, at most {schema['maxItems']} are allowed"
    for i, item in enumerate(value):
        yield from faults(item, schema.get("items", True), root, f"{path}[{i}]")


def number_faults(value, schema, path):
    for keyword, wrong in (("minimum", lambda a, b: a < b), ("maximum", lambda a, b: a > b),
                           ("exclusiveMinimum", lambda a, b: a <= b), ("exclusiveMaximum", lambda a, b: a >= b)):
        if keyword in schema and wrong(value, schema[keyword]):
            yield path, f"{value} breaks {keyword} {schema[keyword]}"


def string_faults(value, schema, path):
    if len(value) < schema.get("minLength", 0) or len(value) > schema.get("maxLength", len(value)):
        yield path, f"{len(value)} characters are too few or too many"
    if "pattern" in schema and not re.search(schema["pattern"], value):
        yield path, f"\"{value}\" is not like {schema['pattern']}"


KEYWORDS = {"$ref", "type", "const", "enum", "required", "properties", "patternProperties", "additionalProperties", "propertyNames",
            "items", "minItems", "maxItems", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength",
            "pattern", "anyOf", "oneOf", "allOf"} | NOTES


def faults(value, schema, root, path):
    """Yields (path, why)."""
    if schema is True:
        return
    if schema is False:
        yield path, "nothing is allowed here"
        return
    unknown = set(schema) - KEYWORDS
    if unknown:
        raise SchemaError(f"keywords not understood: {', '.join(sorted(unknown))}")
    if "$ref" in schema:
        yield from faults(value, resolve(root, schema["$ref"]), root, path)
    if "type" in schema and not is_type(value, schema["type"]):
        yield path, f"{json.dumps(value)[:60]} is not of type {schema['type']}"
        return
    if "const" in schema and not equal(value, schema["const"]):
        yield path, f"{json.dumps(value)[:60]} is not {json.dumps(schema['const'])}"
    if "enum" in schema and not any(equal(value, one) for one in schema["enum"]):
        yield path, f"{json.dumps(value)[:60]} is none of {json.dumps(schema['enum'])}"
    for rule in schema.get("allOf", []):
        yield from faults(value, rule, root, path)
    if "anyOf" in schema and not any(valid(value, rule, root) for rule in schema["anyOf"]):
        yield path, "fits none of anyOf"
    if "oneOf" in schema and sum(valid(value, rule, root) for rule in schema["oneOf"]) != 1:
        yield path, "does not fit exactly one of oneOf"
    if isinstance(value, dict):
        yield from object_faults(value, schema, root, path)
    elif isinstance(value, list):
        yield from array_faults(value, schema, root, path)
    elif isinstance(value, str):
        yield from string_faults(value, schema, path)
    elif TYPES["number"](value):
        yield from number_faults(value, schema, path)


def no_duplicates(pairs):
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key stands twice in an object")
    return result


def refuse(word):
    raise ValueError(f"{word} is no JSON")


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file, object_pairs_hook=no_duplicates, parse_constant=refuse)


def check(schema_path, paths):
    """Fault lines of all files."""
    schema = load(schema_path)
    for path in paths:
        try:
            value = load(path)
        except (OSError, ValueError) as error:
            yield f"{path}: {error}"
            continue
        if isinstance(value, dict) and "schema" in schema.get("properties", {}) and next(iter(value), None) != "schema":
            yield f"{path}: \"schema\" is not the first key"
        for where, why in faults(value, schema, schema, ""):
            yield f"{path}: {where or 'the document'}: {why}"


def main(arguments):
    if len(arguments) < 2 or arguments[0].startswith("-"):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    bad = False
    try:
        for line in check(arguments[0], arguments[1:]):
            print(line, file=sys.stderr)
            bad = True
    except (SchemaError, KeyError, OSError, ValueError) as error:
        print(f"{arguments[0]}: {error}", file=sys.stderr)
        return 2
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
