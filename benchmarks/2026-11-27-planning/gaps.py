#!/usr/bin/env python3
"""Splits gaps of plans into the error of the search and that of the bound.

Usage: gaps.py PROVED.csv LONG.csv: the `sweep.csv` of `experiments sweep --sample --prove 30s` and of
`experiments sweep --sample --effort 10 --prove off`. Prints every fifth question by its gap: the gap, the plan
over the best known one, and the best known plan over the bound.
"""

import csv
import statistics
import sys


def rows(path: str) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def main() -> None:
    gaps = []
    for proved, long in zip(rows(sys.argv[1]), rows(sys.argv[2]), strict=True):
        plan, bound = float(proved["planned_iteration_us"]), float(proved["lower_bound_us"])
        best = min(plan, float(long["planned_iteration_us"]))
        fields = ["model", "batch", "link", "gpus", "amplification_limit"]
        gaps.append((plan / bound - 1, plan / best - 1, best / bound - 1, [proved[field] for field in fields]))
    gaps.sort()
    print("network,batch,link,gpus,limit,gap,search_error,bound_error")
    for gap, search, bound, question in gaps[::5]:
        print(",".join(question + [f"{part:.4f}" for part in (gap, search, bound)]))
    median, least = (f([part[2] for part in gaps]) for f in (statistics.median, min))
    print(f"# median gap {statistics.median(gap[0] for gap in gaps):.4f}, of the bound {median:.4f}, minimum {least:.4f}")


if __name__ == "__main__":
    main()
