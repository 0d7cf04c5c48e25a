#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Judge the skipped tests of one ctest run: each must carry a label that allows it and have said why.

usage: check_skips.py --junit FILE --tests FILE
  --junit  what ctest --output-junit wrote
  --tests  what ctest --show-only=json-v1 printed
Prints one line for each skipped test. exit 0 if all are allowed, 1 if not
"""
import argparse
import json
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree


def succeeds(*command):
    try:
        return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0
    except OSError:
        return False


def network_namespaces_forbidden():
    """Whether a process may not have a network namespace, or not a link in it."""
    for unshare in (["unshare", "--net"], ["unshare", "--map-root-user", "--net"]):
        if succeeds(*unshare, "true"):
            return bool(shutil.which("ip")) and not succeeds(*unshare, "ip", "link", "add", "tpc0", "type", "veth")
    return True


# Label that allows a skip: whether it does so on this machine.
ALLOWED = {
    "gpu": lambda: True,
    "ib": lambda: True,
    "torch": lambda: True,
    "netns": network_namespaces_forbidden,
}


def labels_by_name(path):
    with open(path, encoding="utf-8") as file:
        tests = json.load(file)["tests"]
    return {test["name"]: next((p["value"] for p in test.get("properties", ()) if p["name"] == "LABELS"), []) for test in tests}


def skipped(path):
    """(name, reason) of each test that did not run to its end; reason "" if it gave none."""
    for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
        if case.find("skipped") is None and case.get("status") not in ("notrun", "disabled"):
            continue
        match = re.search(r"^SKIP: *(\S.*)$", case.findtext("system-out") or "", re.MULTILINE)
        yield case.get("name"), match.group(1).strip() if match else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--junit", required=True)
    parser.add_argument("--tests", required=True)
    args = parser.parse_args()
    labels = labels_by_name(args.tests)
    bad = 0
    for name, reason in skipped(args.junit):
        allowed = [label for label in labels.get(name, ()) if label in ALLOWED and ALLOWED[label]()]
        if not allowed:
            fault = f" - NOT ALLOWED: has none of the labels {', '.join(ALLOWED)}" if not set(labels.get(name, ())) & ALLOWED.keys() \
                else " - NOT ALLOWED: this machine has what the test needs"
        elif not reason:
            fault = ' - NOT ALLOWED: printed no line "SKIP: reason"'
        else:
            fault = ""
        bad += fault != ""
        print(f"skipped: {name} ({', '.join(labels.get(name, ())) or 'no label'}): {reason or 'no reason given'}{fault}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
