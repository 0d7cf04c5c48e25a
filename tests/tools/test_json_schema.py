# SPDX-License-Identifier: Apache-2.0
"""Check that tools/json_schema.py finds what breaks a schema, and refuses a schema that it does not understand."""
import json
import os
import unittest

from planted import Planted, ROOT

SCHEMA = {
    "type": "object",
    "required": ["schema", "n"],
    "properties": {"schema": {"const": "x/1"}, "n": {"$ref": "#/$defs/n"}, "s": {"type": ["string", "null"], "pattern": "^a+$", "maxLength": 3},
                   "e": {"enum": [1, "b", True]}, "l": {"type": "array", "items": {"type": "number", "exclusiveMinimum": 0}, "maxItems": 2}},
    "patternProperties": {"^p[0-9]$": {"anyOf": [{"type": "boolean"}, {"type": "integer", "maximum": 5}]}},
    "additionalProperties": False,
    "$defs": {"n": {"type": "integer", "minimum": 1}},
}


class JsonSchema(Planted):
    def check(self, text, schema=None):
        self.plant("schema.json", json.dumps(SCHEMA if schema is None else schema))
        self.plant("file.json", text if isinstance(text, str) else json.dumps(text))
        return self.tool("json_schema.py", os.path.join(self.root, "schema.json"), os.path.join(self.root, "file.json"))

    def test_good(self):
        for more in ({}, {"s": "aa"}, {"s": None}, {"e": "b"}, {"e": True}, {"l": [1, 2.5]}, {"p1": True, "p2": 5}, {"n": 7.0}):
            self.assertEqual(self.check({"schema": "x/1", "n": 1, **more}), (0, ""))

    def test_bad(self):
        for more, piece in (({"n": 0}, "n: 0 breaks minimum 1"), ({"n": True}, "n: true is not of type integer"), ({"n": 1.5}, "n: 1.5"),
                            ({"s": "b"}, "s: "), ({"s": "aaaa"}, "s: 4 characters"), ({"e": 2}, "e: 2"), ({"e": False}, "e: false"),
                            ({"l": [1, 0]}, "l[1]: 0"), ({"l": [1, 1, 1]}, "l: 3 items"), ({"p1": 6}, "p1: fits none"), ({"q": 1}, "q: the key is not allowed"),
                            ({"schema": "x/2"}, "schema: \"x/2\" is not \"x/1\"")):
            status, output = self.check({"schema": "x/1", "n": 1, **more})
            self.assertEqual(status, 1, output)
            self.assertIn(piece, output)
        for text, piece in (("{\"n\": 1, \"schema\": \"x/1\"}", "\"schema\" is not the first key"), ("{\"schema\": \"x/1\"}", "the key n is missing"),
                            ("{\"schema\": \"x/1\", \"n\": 1, \"n\": 1}", "a key stands twice"), ("{", "file.json: "),
                            ("{\"schema\": \"x/1\", \"n\": NaN}", "NaN is no JSON"), ("[]", "is not of type object")):
            status, output = self.check(text)
            self.assertEqual(status, 1, output)
            self.assertIn(piece, output)

    def test_a_schema_it_does_not_understand(self):
        status, output = self.check({}, {"type": "object", "minProperties": 1})
        self.assertEqual(status, 2, output)
        self.assertIn("minProperties", output)
        self.assertEqual(self.tool("json_schema.py")[0], 2)

    def test_every_schema_is_understood(self):
        folder = os.path.join(ROOT, "docs", "schema")
        for name in sorted(os.listdir(folder)):
            self.plant("file.json", "{}")
            status, output = self.tool("json_schema.py", os.path.join(folder, name), os.path.join(self.root, "file.json"))
            self.assertEqual(status, 1, output)  # an empty object is never valid, and the schema was read


if __name__ == "__main__":
    unittest.main()
