"""Requests a second of a proxy with 1, 2 and 4 workers, on a machine that has two processors for proxy, client and server.

    scale.py MAGLOR_PROXY [ROUNDS] [SECONDS]

Each worker thread has a control group of its own (cgroup v1, `cpu`), whose quota is a fifth of one processor, and runs on processor 0
or 1 in turn: workers run at the same time, contend for the same locks and cache lines as without a quota, and leave enough for the
client and the server, so that these are never what is measured. A worker that others leave no work to cannot use its quota, and one
that has too much cannot use that of others: uneven connections are seen. Needs root, h2load and nginx.

Prints medians over alternating rounds, and the share of each worker in the processor time of all.
"""

import os
import pathlib
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

PROXY = sys.argv[1]
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 5
SECONDS = int(sys.argv[3]) if len(sys.argv) > 3 else 3
PERIOD_US, QUOTA_US = 10_000, 2_000
WORKERS = [1, 2, 4]
GROUPS = pathlib.Path("/sys/fs/cgroup/cpu")
SCRATCH = pathlib.Path(tempfile.mkdtemp(prefix="workers"))
# Name, options of h2load, scheme and listener.
LOADS = [
    ("HTTP/1.1, 64 connections", ["--h1", "-c64"], "http", "plain"),
    ("HTTP/1.1, 16 connections", ["--h1", "-c16"], "http", "plain"),
    ("h2c, 64 connections", ["-c64"], "http", "plain"),
    ("h2c, 16 connections of 10 streams", ["-c16", "-m10"], "http", "plain"),
    ("HTTP/1.1 over TLS, 64 connections", ["--h1", "-c64"], "https", "tls"),
]


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def wait_for(port):
    until = time.time() + 10
    while time.time() < until:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.01)
    raise SystemExit(f"nothing listens at port {port}")


def start_nginx(port):
    conf = SCRATCH / "nginx.conf"
    conf.write_text(
        f"""worker_processes 2; daemon off; pid {SCRATCH}/nginx.pid; error_log /dev/null;
events {{ worker_connections 4096; }}
http {{ access_log off; keepalive_requests 100000000; client_body_temp_path {SCRATCH}; proxy_temp_path {SCRATCH};
 server {{ listen 127.0.0.1:{port} reuseport; location / {{ return 200 "{'x' * 64}"; }} }} }}
"""
    )
    process = subprocess.Popen(["nginx", "-c", str(conf)], stderr=subprocess.DEVNULL)
    wait_for(port)
    return process


def certificate():
    key, cert = SCRATCH / "key.pem", SCRATCH / "cert.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=localhost -days 2"
    command += f" -addext subjectAltName=DNS:localhost -keyout {key} -out {cert}"
    subprocess.run(command.split(), check=True, stderr=subprocess.DEVNULL)
    return key, cert


class Proxy:
    def __init__(self, workers, endpoint, key, cert):
        self.ports = {"plain": free_port(), "tls": free_port()}
        http = "http: {virtual_hosts: [{name: all, domains: ['*'], routes: [{cluster: origin}]}]}"
        config = SCRATCH / f"proxy{workers}.yaml"
        config.write_text(
            f"""workers: {workers}
listeners:
- {{name: plain, address: '127.0.0.1:{self.ports["plain"]}', {http}}}
- {{name: tls, address: '127.0.0.1:{self.ports["tls"]}', tls: {{certificates: [{{certificate: {cert}, private_key: {key}}}]}}, {http}}}
clusters: [{{name: origin, endpoints: ["127.0.0.1:{endpoint}"]}}]
"""
        )
        self.process = subprocess.Popen([PROXY, "--config", str(config)], stderr=open(SCRATCH / f"log{workers}", "w"))
        self.groups = []
        wait_for(self.ports["plain"])
        while len(tasks := self.worker_threads()) < workers:
            time.sleep(0.01)
        for task in tasks:
            self.bound(task)

    def worker_threads(self):
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task").iterdir()
        workers = [task for task in tasks if (task / "comm").read_text().startswith("worker-")]
        return sorted(workers, key=lambda task: int(task.name))

    def bound(self, task):
        number = len(self.groups)
        group = GROUPS / f"maglor-scale-{self.process.pid}-{number}"
        group.mkdir()
        (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (group / "cpu.cfs_quota_us").write_text(str(QUOTA_US))
        (group / "tasks").write_text(task.name)
        os.sched_setaffinity(int(task.name), {number % 2})
        self.groups.append((group, task))

    def nanoseconds(self):
        return [int((task / "schedstat").read_text().split()[0]) for _, task in self.groups]

    def load(self, options, scheme, listener):
        target = f"{scheme}://127.0.0.1:{self.ports[listener]}/"
        before = self.nanoseconds()
        line = ["h2load", *options, "-t2", f"-D{SECONDS}", "--warm-up-time=1", target]
        out = subprocess.run(line, capture_output=True, text=True).stdout
        spent = [after - one for after, one in zip(self.nanoseconds(), before)]
        rate = float(re.search(r"([\d.]+) req/s", out).group(1))
        failed, errors = map(int, re.search(r"(\d+) failed, (\d+) errored", out).groups())
        if failed or errors:
            raise SystemExit(f"{failed} failed, {errors} errors: {out}")
        return rate, spent

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(20)
        for group, _ in self.groups:
            group.rmdir()


def main():
    endpoint = free_port()
    nginx = start_nginx(endpoint)
    key, cert = certificate()
    proxies = {}
    try:
        for workers in WORKERS:
            proxies[workers] = Proxy(workers, endpoint, key, cert)
        print("| load | workers | requests a second | of one worker | busiest worker ÷ mean |\n| --- | ---: | ---: | --- | ---: |")
        for name, options, scheme, listener in LOADS:
            rates = {workers: [] for workers in WORKERS}
            uneven = {workers: [] for workers in WORKERS}
            for _ in range(ROUNDS):
                for workers, proxy in proxies.items():
                    rate, spent = proxy.load(options, scheme, listener)
                    rates[workers].append(rate)
                    uneven[workers].append(max(spent) / statistics.mean(spent))
            for workers in WORKERS:
                ratios = [many / one for many, one in zip(rates[workers], rates[1])]
                middle = statistics.median(ratios)
                print(
                    f"| {name} | {workers} | {statistics.median(rates[workers]):.0f} "
                    f"| {middle:.2f} ({min(ratios):.2f} to {max(ratios):.2f}) | {statistics.median(uneven[workers]):.2f} |",
                    flush=True,
                )
    finally:
        for proxy in proxies.values():
            proxy.stop()
        nginx.send_signal(signal.SIGTERM)
        nginx.wait(20)


main()
