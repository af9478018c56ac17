"""Random service graphs and nodes of a given utilisation, for the oracles. Equal seeds, equal files."""

import random


def service_graph(services, nodes, utilisation, seed):
    """Returns the contents of a graph file and of a nodes file."""
    rng = random.Random(seed)
    rows = [
        {
            "name": f"s{i}",
            "replicas": rng.choice([1, 1, 2, 2, 3]),
            "cpu_millis": rng.randint(5, 60) * 10,
            "memory_mib": rng.randint(16, 512),
        }
        for i in range(services)
    ]
    edges = []

    def call(a, b):
        rate = round(rng.paretovariate(1.2) * 10, 3)
        edges.append({"from": f"s{a}", "to": f"s{b}", "rps": rate, "latency_ms": round(rng.uniform(1, 20), 2)})

    for i in range(1, services):
        # Half of the services are called by what was there early: hubs.
        call(min(rng.randrange(i), rng.randrange(i)) if rng.random() < 0.5 else rng.randrange(i), i)
    for _ in range(services // 2):
        call(*rng.sample(range(services), 2))

    def total(resource):
        return sum(row[resource] * row["replicas"] for row in rows)

    parts = [rng.uniform(0.6, 1.4) for _ in range(nodes)]
    node_rows = [
        {
            "name": f"n{i}",
            "cpu_millis": int(total("cpu_millis") / utilisation * part / sum(parts)),
            "memory_mib": int(total("memory_mib") / utilisation * part / sum(parts)),
        }
        for i, part in enumerate(parts)
    ]
    return {"services": rows, "edges": edges}, {"nodes": node_rows}
