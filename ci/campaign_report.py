#!/usr/bin/env python3
"""Shows what campaigns have done: coverage against commands, and every finding once.

    python3 ci/campaign_report.py FOLDER... [--json]

A FOLDER is one that `ci/campaign --out` has written, or contains such folders, such as the shards of one campaign.
Shards are added up: the sum of their commands, the best coverage of one of them, findings of the same name once.
Exit codes: 0 nothing found; 1 something was; 2 a folder holds no campaign.
"""

import argparse
import csv
import json
import pathlib
import sys

LEVELS = " .:-=+*#@"
WIDTH = 16


def read(folders):
    """(rows of the curves by part and source, findings by name), or ValueError with the folder that holds none."""
    curves, findings = {}, {}
    for folder in folders:
        states = sorted(pathlib.Path(folder).glob("state.json")) or sorted(pathlib.Path(folder).glob("*/state.json"))
        if not states:
            raise ValueError(f"{folder}: found no state.json, expected the folder of a campaign")
        for state in states:
            add_curve(curves, state.with_name("curve.csv"))
            for name, finding in json.loads(state.read_text())["findings"].items():
                known = findings.setdefault(name, {"seed": finding["seed"], "times": 0,
                                                   "file": str(state.parent / "findings" / f"{name}.kvs")})
                known["times"] += finding["times"]
    return curves, findings


def add_curve(curves, file):
    if not file.exists():
        return
    with file.open(newline="") as stream:
        shard = {}
        for row in csv.DictReader(stream):
            shard.setdefault((row["part"], row["source"]), []).append(
                {key: float(row[key] or 0) for key in ("commands", "reached", "of")})
    for key, rows in shard.items():
        curves.setdefault(key, []).append(rows)


def curve_of(shards):
    """The points of one curve: the sum of what shards ran by the same time, and the best coverage of one of them."""
    points = []
    for place in range(max(len(rows) for rows in shards)):
        at = [rows[min(place, len(rows) - 1)] for rows in shards]
        points.append({"commands": int(sum(row["commands"] for row in at)),
                       "reached": int(max(row["reached"] for row in at)), "of": int(max(row["of"] for row in at))})
    return points


def summary(curves):
    """One dict for each part and source: totals, and where the curve rose for the last time."""
    rows = []
    for (part, source), shards in sorted(curves.items()):
        points = curve_of(shards)
        last = points[-1]
        rose = next(point for point in points if point["reached"] == last["reached"])
        rows.append({"part": part, "source": source, "commands": last["commands"], "reached": last["reached"],
                     "of": last["of"], "last_new_at": rose["commands"], "curve": picture(points)})
    return rows


def picture(points):
    """The coverage at the end of each of WIDTH equal parts of the commands, as characters of growing weight; the lightest
    stands for the coverage of the first check, so that a flat end is visible."""
    first, last, total = points[0]["reached"], points[-1]["reached"], points[-1]["commands"]
    text = ""
    for column in range(1, WIDTH + 1):
        done = [point["reached"] for point in points if point["commands"] * WIDTH <= column * total]
        share = ((done[-1] if done else 0) - first) / (last - first) if last > first else 1
        text += LEVELS[max(1, round(share * (len(LEVELS) - 1)))] if done else LEVELS[0]
    return text


def to_text(rows, findings):
    lines = [f"{'part':30} {'source':7} {'commands':>15} {'reached':>13} {'last new at':>15}  curve"]
    for row in rows:
        reached = f"{row['reached']:,}/{row['of']:,}" if row["of"] else f"{row['reached']:,}"
        lines.append(f"{row['part']:30} {row['source']:7} {row['commands']:>15,} {reached:>13}"
                     f" {row['last_new_at']:>15,}  {row['curve']}")
    for name, finding in sorted(findings.items()):
        lines.append(f"{finding['file']}  {finding['times']} times, first with seed {finding['seed']}")
    lines.append(f"{len(findings)} findings")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(prog="ci/campaign_report.py", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", metavar="FOLDER", nargs="+")
    parser.add_argument("--json", action="store_true", help="one object")
    options = parser.parse_args()
    try:
        curves, findings = read(options.folders)
    except (OSError, ValueError, KeyError) as error:
        print(f"ci/campaign_report.py: {error}", file=sys.stderr)
        return 2
    rows = summary(curves)
    print(json.dumps({"curves": rows, "findings": findings}) if options.json else to_text(rows, findings))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
