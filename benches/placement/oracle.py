"""Runs `maglor plan placement` beside CP-SAT, KaHIP and Mt-KaHyPar; see README.md in this folder.

    oracle.py exact  --maglor "target/release/maglor plan placement" --out DIR [--graphs 200] [--seconds 4]
    oracle.py graphs --maglor "target/release/maglor plan placement" --out DIR [--mesh 4elt.graph]
    oracle.py time   --maglor "target/release/maglor plan placement" --out DIR
"""

import argparse
import csv
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time

from graphs import service_graph


def partition(maglor, graph, nodes, *more):
    """Runs the command; returns its JSON, its wall and CPU seconds and its peak memory in MB."""
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for name, content in (("graph", graph), ("nodes", nodes)):
            path = os.path.join(folder, name + ".json")
            with open(path, "w") as out:
                json.dump(content, out)
            files += ["--" + name, path]
        report = os.path.join(folder, "time")
        begin = time.perf_counter()
        command = ["/usr/bin/time", "-f", "%U %S %M", "-o", report, *maglor.split(), *files, *more]
        done = subprocess.run(command, capture_output=True, text=True)
        wall = time.perf_counter() - begin
        user, system, memory = open(report).read().split()[-3:]
        if not done.stdout:
            sys.exit(f"{' '.join(command)}: {done.stderr}")
        return json.loads(done.stdout), wall, float(user) + float(system), int(memory) / 1024


def rows_to(path, rows):
    with open(path, "w", newline="") as out:
        writer = csv.DictWriter(out, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)


def exact(options):
    """200 graphs of 10 to 40 services at 70 to 90 % utilisation, beside CP-SAT."""
    import cpsat

    rows = []
    for seed in range(1, options.graphs + 1):
        rng = random.Random(seed)
        services, nodes = rng.randint(10, 40), rng.randint(3, 8)
        utilisation = rng.uniform(0.7, 0.9)
        graph, node_file = service_graph(services, nodes, utilisation, seed)
        ours, wall, cpu, _ = partition(options.maglor, graph, node_file)
        # Once on its own, once from our placement, to see what it can still gain.
        alone = cpsat.solve(graph, node_file, options.seconds)
        best = alone
        if ours["feasible"]:
            hinted = cpsat.solve(graph, node_file, options.seconds, hint=ours["placement"])
            if hinted[1] is not None and (alone[1] is None or hinted[1] < alone[1]):
                best = hinted
        gap = None
        if ours["feasible"] and best[1] is not None:
            gap = round(ours["cut"] / best[1] - 1, 5) if best[1] > 1e-6 else round(ours["cut"], 5)
        rows.append({
            "seed": seed, "services": services, "nodes": nodes, "utilisation": round(utilisation, 3),
            "feasible": ours["feasible"], "cut": ours.get("cut"), "optimal": ours.get("optimal"),
            "cpsat_alone": alone[0], "cpsat_alone_cut": alone[1],
            "cpsat_best": best[0], "cpsat_best_cut": best[1], "gap": gap,
            "wall_s": round(wall, 3), "cpu_s": round(cpu, 3),
        })
        print(rows[-1], flush=True)
        rows_to(os.path.join(options.out, "exact.csv"), rows)


def metis_file(path):
    """A graph in METIS' format without weights: neighbours of each vertex, from 0."""
    with open(path) as lines:
        lines = [line for line in lines if not line.startswith("%")]
    return [[int(v) - 1 for v in line.split()] for line in lines[1:]]


def planted(vertices, degree, blocks, seed):
    """A random graph with groups: most edges stay within a group."""
    rng = random.Random(seed)
    neighbours = [set() for _ in range(vertices)]
    for v in range(vertices):
        for _ in range(degree // 2):
            group = v * blocks // vertices
            if rng.random() < 0.85:
                u = rng.randrange(group * vertices // blocks, (group + 1) * vertices // blocks)
            else:
                u = rng.randrange(vertices)
            if u != v:
                neighbours[u].add(v)
                neighbours[v].add(u)
    return [sorted(row) for row in neighbours]


def geometric(vertices, seed):
    """A random geometric graph: points of a square, near ones connected."""
    rng = random.Random(seed)
    points = [(rng.random(), rng.random()) for _ in range(vertices)]
    radius = 1.5 / vertices**0.5
    cells = {}
    for v, (x, y) in enumerate(points):
        cells.setdefault((int(x / radius), int(y / radius)), []).append(v)
    neighbours = [[] for _ in points]
    for v, (x, y) in enumerate(points):
        for dx in (-1, 0, 1):
            for dy in (-1, 0, 1):
                for u in cells.get((int(x / radius) + dx, int(y / radius) + dy), []):
                    if u != v and (points[u][0] - x) ** 2 + (points[u][1] - y) ** 2 < radius**2:
                        neighbours[v].append(u)
    return neighbours


def as_files(neighbours, capacities):
    services = [{"name": f"v{v}", "replicas": 1, "cpu_millis": 1, "memory_mib": 0} for v in range(len(neighbours))]
    edges = [
        {"from": f"v{v}", "to": f"v{u}", "rps": 1, "latency_ms": 1}
        for v, row in enumerate(neighbours) for u in row if v < u
    ]
    nodes = [{"name": f"n{i}", "cpu_millis": c, "memory_mib": 1} for i, c in enumerate(capacities)]
    return {"services": services, "edges": edges}, {"nodes": nodes}


def kahip_best(neighbours, blocks, imbalance, seeds):
    import kahip

    start, adjacent = [0], []
    for row in neighbours:
        adjacent += row
        start.append(len(adjacent))
    weights, ones = [1] * len(neighbours), [1] * len(adjacent)
    cuts = []
    for seed in seeds:
        cut, _ = kahip.kaffpa(weights, start, ones, adjacent, blocks, imbalance, True, seed, 2)
        cuts.append(cut)
    return min(cuts)


def mtkahypar_best(neighbours, capacities, seeds):
    import mtkahypar

    library = mtkahypar.initialize(1)
    edges = [(v, u) for v, row in enumerate(neighbours) for u in row if v < u]
    cuts = []
    for seed in seeds:
        context = library.context_from_preset(mtkahypar.PresetType.QUALITY)
        mtkahypar.set_seed(seed)
        context.logging = False
        context.set_partitioning_parameters(len(capacities), 0.0, mtkahypar.Objective.CUT)
        context.set_individual_target_block_weights(capacities)
        graph = library.create_graph(context, len(neighbours), len(edges), edges)
        parts = graph.partition(context)
        loads = [parts.block_weight(block) for block in range(len(capacities))]
        fits = all(load <= most for load, most in zip(loads, capacities))
        cuts.append((not fits, int(parts.cut())))
    return min(cuts)


def graphs(options):
    """Equal parts beside KaHIP, unequal ones beside Mt-KaHyPar, at 3 % imbalance."""
    instances = [
        ("geometric-1000", geometric(1000, 1), 4), ("planted-1000", planted(1000, 8, 8, 1), 8),
        ("geometric-4000", geometric(4000, 2), 8), ("planted-4000", planted(4000, 8, 16, 2), 16),
    ]
    if options.mesh:
        mesh = metis_file(options.mesh)
        instances += [("4elt", mesh, blocks) for blocks in (2, 4, 8, 16)]
    rows = []
    for name, neighbours, blocks in instances:
        count = len(neighbours)
        for kind in ("equal", "unequal"):
            parts = [1.0] * blocks if kind == "equal" else [1.0 + i % 4 for i in range(blocks)]
            capacities = [int(1.03 * -(-count * part // sum(parts))) for part in parts]
            ours, wall, cpu, memory = partition(options.maglor, *as_files(neighbours, capacities))
            if kind == "equal":
                oracle, best, fits = "KaHIP strong", kahip_best(neighbours, blocks, 0.03, range(options.seeds)), True
            else:
                unfit, best = mtkahypar_best(neighbours, capacities, range(options.seeds))
                oracle, fits = "Mt-KaHyPar quality", not unfit
            rows.append({
                "graph": name, "blocks": blocks, "parts": kind, "cut": round(ours["cut"]), "oracle": oracle,
                "oracle_cut": best, "oracle_fits": fits, "gap": round(ours["cut"] / best - 1, 4),
                "wall_s": round(wall, 2), "cpu_s": round(cpu, 2), "memory_mb": round(memory, 1),
            })
            print(rows[-1], flush=True)
            rows_to(os.path.join(options.out, "graphs.csv"), rows)


def times(options):
    """Wall time and memory of whole commands."""
    rows = []
    for services, nodes, seeds in ((12, 3, 20), (100, 8, 10), (1000, 20, 3), (5000, 200, 1)):
        runs = []
        for seed in range(1, seeds + 1):
            graph, node_file = service_graph(services, nodes, 0.8, seed)
            ours, wall, cpu, memory = partition(options.maglor, graph, node_file)
            assert ours["feasible"], (services, seed)
            runs.append((wall, cpu, memory, ours["cut"] / ours["total"]))
        runs.sort()
        rows.append({
            "services": services, "nodes": nodes, "runs": seeds,
            "wall_ms_median": round(1000 * runs[len(runs) // 2][0], 1), "wall_ms_max": round(1000 * runs[-1][0], 1),
            "cpu_ms_median": round(1000 * sorted(run[1] for run in runs)[len(runs) // 2], 1),
            "memory_mb_max": round(max(run[2] for run in runs), 1),
            "cut_share_mean": round(sum(run[3] for run in runs) / len(runs), 4),
        })
        print(rows[-1], flush=True)
        rows_to(os.path.join(options.out, "time.csv"), rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["exact", "graphs", "time"])
    parser.add_argument("--maglor", required=True, help="the command, `maglor plan placement` for example")
    parser.add_argument("--out", required=True)
    parser.add_argument("--graphs", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--mesh")
    chosen = parser.parse_args()
    os.makedirs(chosen.out, exist_ok=True)
    {"exact": exact, "graphs": graphs, "time": times}[chosen.what](chosen)
