"""Memory of a proxy: memory.py BINARY...

Resident memory (VmRSS) and its anonymous part (RssAnon), in KiB, of one worker: idle, with 1000 parked keep-alive connections that have asked once, and
while 64 connections ask without pause; medians of five processes of each binary, in turns.
"""
import importlib.util, os, signal, socket, statistics, subprocess, sys, tempfile, time
sys.argv, binaries = sys.argv[:1], sys.argv[1:]
here = os.path.dirname(os.path.abspath(__file__))
spec = importlib.util.spec_from_file_location('count', os.path.join(here, '..', '2026-11-25-http2', 'count.py'))
count = importlib.util.module_from_spec(spec)
spec.loader.exec_module(count)
REQUEST = b'GET / HTTP/1.1\r\nhost: a\r\nuser-agent: bench\r\naccept: */*\r\n\r\n'

def resident(pid):
    with open(f'/proc/{pid}/status') as file:
        rows = dict(line.split(':', 1) for line in file)
    return [int(rows[name].split()[0]) for name in ('VmRSS', 'RssAnon')]

def connect():
    for _ in range(600):
        try:
            return socket.create_connection(('127.0.0.1', count.PORT))
        except OSError:
            time.sleep(.02)
    raise SystemExit('no proxy')

def answer(client):
    seen = b''
    while not seen.endswith(b'0123'):
        data = client.recv(65536)
        if not data:
            raise SystemExit('closed')
        seen += data

def one(binary, folder):
    name = os.path.join(folder, 'maglor.yaml')
    with open(name, 'w') as file:
        file.write(f"workers: 1\nlisteners:\n- {{name: web, address: '127.0.0.1:{count.PORT}', http: {{virtual_hosts: "
                   f"[{{domains: ['*'], routes: [{{cluster: a}}]}}]}}}}\nclusters:\n- {{name: a, endpoints: ['127.0.0.1:{count.UPSTREAM}']}}\n")
    proxy = subprocess.Popen([binary, '--config', name], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        connect().close()
        time.sleep(2)
        idle = resident(proxy.pid)
        clients = [connect() for _ in range(1000)]
        for client in clients:
            client.sendall(REQUEST)
            answer(client)
        time.sleep(3)
        parked = resident(proxy.pid)
        busy = []
        for round in range(100):
            for client in clients[:64]:
                client.sendall(REQUEST)
            for client in clients[:64]:
                answer(client)
            busy.append(resident(proxy.pid))
        return *idle, *parked, *(statistics.median(column) for column in zip(*busy))
    finally:
        proxy.send_signal(signal.SIGKILL)
        proxy.wait()

with tempfile.TemporaryDirectory() as folder:
    results = {binary: [] for binary in binaries}
    for _ in range(5):
        for binary in binaries:
            results[binary].append(one(binary, folder))
for binary, rows in results.items():
    print(os.path.basename(binary), 'idle, parked, busy, each VmRSS and RssAnon [KiB]:', *(statistics.median(column) for column in zip(*rows)), flush=True)
