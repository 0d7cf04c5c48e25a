# SPDX-License-Identifier: Apache-2.0
"""Check that README's example is the file in examples/ and prints what README says it prints."""
import argparse
import re
import subprocess
import sys


def block(text, language, after):
    """Text of the first fenced block of a language after a heading."""
    match = re.search(rf"{re.escape(after)}.*?\n```{language}\n(.*?)```", text, re.DOTALL)
    if not match:
        sys.exit(f"README has no {language} block after \"{after}\"")
    return match.group(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("readme", "example", "program"):
        parser.add_argument(f"--{name}", required=True)
    args = parser.parse_args()
    with open(args.readme, encoding="utf-8") as file:
        readme = file.read()
    with open(args.example, encoding="utf-8") as file:
        example = file.read()
    # README leaves out the licence line.
    if block(readme, "c", "## Embed it").strip() != example.split("\n", 1)[1].strip():
        sys.exit(f"README's example is not {args.example}")
    said = sorted(block(readme, "text", "## Embed it").strip().split("\n"))
    printed = sorted(subprocess.run([args.program], stdout=subprocess.PIPE, text=True, check=True).stdout.strip().split("\n"))
    if said != printed:
        sys.exit(f"README says {said}, the example printed {printed}")


if __name__ == "__main__":
    main()
