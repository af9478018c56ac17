"""The exact placement of a graph by CP-SAT: an oracle for `maglor plan placement`.

Integer model: x[s, n] replicas of service s on node n; an edge (u, v) keeps k[n] <= both services'
shares of node n, in units of the least common multiple of the two counts of replicas; the kept
traffic is largest. No word of it is shared with the solver that it judges.
"""

import json
import math
import sys

from ortools.sat.python import cp_model

SCALE = 1000  # weights in thousandths of a call a second


def solve(graph, nodes, seconds, hint=None, workers=1):
    """Returns (status, cut or None, bound of the cut)."""
    model = cp_model.CpModel()
    services = {s["name"]: s for s in graph["services"]}
    node_names = [n["name"] for n in nodes["nodes"]]
    x = {}
    for name, s in services.items():
        for n in node_names:
            most = min(s["replicas"], s.get("max_per_node", s["replicas"]))
            x[name, n] = model.new_int_var(0, most, f"{name}@{n}")
        model.add(sum(x[name, n] for n in node_names) == s["replicas"])
    for node in nodes["nodes"]:
        for resource in ("cpu_millis", "memory_mib"):
            need = sum(s[resource] * x[name, node["name"]] for name, s in services.items())
            model.add(need <= node[resource])
        if "pods" in node:
            model.add(sum(x[name, node["name"]] for name in services) <= node["pods"])
    weights = {}
    for e in graph["edges"]:
        if e["from"] != e["to"]:
            pair = tuple(sorted((e["from"], e["to"])))
            weights[pair] = weights.get(pair, 0) + e["rps"]
    every = math.lcm(*(math.lcm(services[u]["replicas"], services[v]["replicas"]) for u, v in weights)) if weights else 1
    kept, total = [], 0
    for (u, v), weight in weights.items():
        unit = math.lcm(services[u]["replicas"], services[v]["replicas"])
        factor = round(weight * SCALE) * (every // unit)
        total += factor * unit
        for n in node_names:
            k = model.new_int_var(0, unit, "")
            model.add(k <= x[u, n] * (unit // services[u]["replicas"]))
            model.add(k <= x[v, n] * (unit // services[v]["replicas"]))
            kept.append(factor * k)
    model.maximize(sum(kept))
    if hint:
        for (name, n), variable in x.items():
            model.add_hint(variable, hint.get(name, {}).get(n, 0))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = workers
    solver.parameters.random_seed = 1
    status = solver.solve(model)
    name = solver.status_name(status)
    to_cut = lambda value: (total - value) / every / SCALE
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return name, to_cut(solver.objective_value), to_cut(solver.best_objective_bound)
    return name, None, None


if __name__ == "__main__":
    graph, nodes = (json.load(open(path)) for path in sys.argv[1:3])
    print(solve(graph, nodes, float(sys.argv[3])))
