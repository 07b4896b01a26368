"""`bench.py --part counts`: what several vCPUs cost, counted instead of timed.

A replay runs in a machine of its own (`reprise run`), where positions are instructions: those that the recorder
executes for the loads of --part cpus, the same at each time and whatever else the host does. --runs are seeds, from
1 on, as where slices end decides what code gets hot: medians of the ratios with each.
"""
import statistics

import cpus
import work
from jobs import counted, own_homes, run


def measure(place, runs):
    own_homes(place)
    seeds = []
    for seed in range(1, runs + 1):
        seeds.append({})
        for job, argv in cpus.alone(place, seed=seed).items():
            run(argv)
            seeds[-1][job] = counted(place, cpus.recording(place)) / 1e9
    rows, notes = [], ["counts: G instructions of the host, by seed:"]

    def row(name, less, bound):
        ratios = [(s[name, 4] - less(s, 4)) / (s[name, 1] - less(s, 1)) for s in seeds]
        value = statistics.median(ratios)
        rows.append(work.row(f"counts: {name} with 4 vCPUs / with 1", value, f"{value:.3f}", bound))
        notes.append(f"  {name:<10}" + "; ".join(f"{s[name, 4]:6.2f} / {s[name, 1]:6.2f}, {r:.3f}" for s, r in zip(seeds, ratios)))

    row("boot", lambda s, n: 0, 1.25)
    for name in cpus.ALONE:
        row(name, lambda s, n: s["boot", n], 1.03)
    return {"rows": rows, "notes": notes}
