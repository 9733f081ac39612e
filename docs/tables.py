"""Write the tables and charts of the pages from the result files in docs/results/.

    python docs/tables.py            # rewrites the charts, and all between <!-- table: NAME --> and <!-- end -->
    python docs/tables.py --check    # names each page or chart that differs from the files, and exits with 1

The pages are those of `PAGES`, or those named. So no figure on them can
drift from its source.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

import construct_tables as construct_tables
import finding_tables as finding_tables
import goals as goals
import lm_tables as lm_tables
import quality_tables as quality_tables
import recipe_tables as recipe_tables
import speed_tables as speed_tables
import theory_tables as theory_tables
from charts import CHARTS
from figures import RESULTS, TABLES, named, table

DOCS = Path(__file__).parent
PAGES = [
    DOCS.parent / "README.md",
    DOCS / "results.md",
    DOCS / "reproduce.md",
    DOCS / "recipe.md",
    DOCS / "theory.md",
    DOCS / "compiler.md",
    DOCS / "export.md",
    DOCS / "classification.md",
]
MARKED = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end -->)", re.S)


@named
def sources() -> str:
    body = []
    for path in sorted(RESULTS.rglob("*.json")):
        name = path.relative_to(RESULTS).as_posix()
        meta = json.loads(path.read_text(encoding="utf-8")).get("meta", {})
        if "command" in meta:
            cpu = "{cpu}, {cores} cores".format_map({"cpu": "?", "cores": "?"} | meta.get("hardware", {}))
            machine = meta.get("device", {}).get("gpu", cpu)
            torch = meta.get("versions", {}).get("torch", "")
            link = f"[{name}](results/{name})"
            body.append((link, machine, torch, (meta.get("commit") or "")[:7], f"`{meta['command']}`"))
    return table("file | machine | torch | commit | command", body)


def rewrite(text: str) -> str:
    """Return a page with every table written anew."""
    return MARKED.sub(lambda found: f"{found[1]}{TABLES[found[2]]()}{found[3]}", text)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pages", nargs="*", type=Path, default=PAGES)
    parser.add_argument("--check", action="store_true", help="change nothing")
    options = parser.parse_args()
    wanted = {page: rewrite(page.read_text(encoding="utf-8")) for page in options.pages}
    wanted |= {RESULTS / name: draw() for name, draw in CHARTS.items()}
    old = [
        path for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    for path in old:
        if not options.check:
            path.write_text(wanted[path], encoding="utf-8", newline="\n")
        print(f"{path} {'is out of date: run python docs/tables.py' if options.check else 'rewritten'}")
    return int(options.check and bool(old))


if __name__ == "__main__":
    sys.exit(main())
