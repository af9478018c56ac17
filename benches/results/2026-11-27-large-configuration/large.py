"""A proxy with a large configuration: large.py BINARY [--routes N] [--clusters N] [--endpoints N] [--certificates N] [--rounds N].

Three configurations with all clusters, endpoints and certificates: `paths`, one host with a prefix a route; `hosts`, one host a route; and
`small`, one route to one endpoint. For each: seconds of CPU and of time from start to ready, private resident memory, CPU of the worker for
a request to the last route (alternating rounds of 4000 keep-alive requests; the kernel's accounts), and, for changes of the file while a
client sends requests without a pause: CPU of the control thread and of the worker beyond the requests, and the slowest request.
Everything is on loopback.
"""
import argparse, os, re, shutil, signal, socket, statistics, subprocess, sys, tempfile, threading, time
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
import datetime
PORT, TLS_PORT, UPSTREAM = 18490, 18491, 18492
parser = argparse.ArgumentParser()
parser.add_argument('binary')
for name, default in (('routes', 10000), ('clusters', 1000), ('endpoints', 10000), ('certificates', 1000), ('rounds', 5), ('changes', 9)):
    parser.add_argument('--' + name, type=int, default=default)
args = parser.parse_args()

def certificates(folder):
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.timezone.utc)
    for n in range(args.certificates):
        name = f's{n}.example.com'
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        one = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
        one = one.serial_number(n + 1).not_valid_before(now).not_valid_after(now + datetime.timedelta(days=30))
        one = one.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), False).sign(key, hashes.SHA256())
        with open(f'{folder}/{n}.pem', 'wb') as file: file.write(one.public_bytes(serialization.Encoding.PEM))
    with open(f'{folder}/key.pem', 'wb') as file:
        file.write(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))

def config(shape, folder, last=0):
    """The text of a configuration; `last` changes one endpoint."""
    text = ['workers: 1']
    small = shape == 'small'
    routes, clusters = (1, 1) if small else (args.routes, args.clusters)
    each = 1 if small else max(1, args.endpoints // clusters)
    text.append('listeners:')
    text.append(f"- name: web\n  address: '127.0.0.1:{PORT}'\n  http:\n    virtual_hosts:")
    if shape == 'hosts':
        for n in range(routes):
            text.append(f"    - {{name: h{n}, domains: [h{n}.example.com], routes: [{{cluster: c{n % clusters}}}]}}")
    else:
        text.append("    - name: all\n      domains: ['*']\n      routes:")
        for n in range(routes):
            text.append(f"      - {{match: {{path: {{prefix: /team/s{n}}}}}, cluster: c{n % clusters}}}")
    if not small and args.certificates:
        text.append(f"- name: tls\n  address: '127.0.0.1:{TLS_PORT}'\n  filter_chains:")
        for n in range(args.certificates):
            text.append(f"  - {{name: t{n}, match: {{server_names: [s{n}.example.com]}}, tls: {{certificate: {folder}/{n}.pem, private_key: {folder}/key.pem}}, "
                        f"http: {{virtual_hosts: [{{name: x, domains: ['*'], routes: [{{cluster: c{n % clusters}}}]}}]}}}}")
    text.append('clusters:')
    for n in range(clusters):
        ends = [f"127.{1 + n // 250}.{1 + n % 250}.{1 + k}:{8000 + (last if n == 0 and k == each - 1 else 0)}" for k in range(each)]
        # The cluster of the last route has the server that exists.
        if n == (routes - 1) % clusters: ends = [f'127.0.0.1:{UPSTREAM}']
        text.append(f"- {{name: c{n}, endpoints: [{', '.join(repr(e) for e in ends)}]}}")
    return '\n'.join(text) + '\n'

def serve():
    listener = socket.create_server(('127.0.0.1', UPSTREAM), backlog=64)
    def one(connection):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while data := connection.recv(65536):
            connection.sendall(b'HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n0123')
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=one, args=(connection,), daemon=True).start()

def spent(pid, name=None):
    """CPU in microseconds of the threads with this name."""
    total = 0
    for task in os.listdir(f'/proc/{pid}/task'):
        try:
            with open(f'/proc/{pid}/task/{task}/comm') as file: comm = file.read().strip()
            with open(f'/proc/{pid}/task/{task}/schedstat') as file: took = int(file.read().split()[0])
        except OSError: continue
        if name is None or comm.startswith(name) == (name == 'worker') and (name == 'worker' or not comm.startswith('worker')): total += took
    return total / 1e3

def private(pid):
    with open(f'/proc/{pid}/status') as file: return int(re.search(r'RssAnon:\s+(\d+)', file.read()).group(1)) / 1024

class Client:
    def __init__(self, shape):
        routes = 1 if shape == 'small' else args.routes
        host, path = (f'h{routes - 1}.example.com', '/') if shape == 'hosts' else ('a.example.com', f'/team/s{routes - 1}/x')
        self.request = f'GET {path} HTTP/1.1\r\nhost: {host}\r\nuser-agent: bench\r\naccept: */*\r\n\r\n'.encode()
        self.socket = socket.create_connection(('127.0.0.1', PORT))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    def ask(self):
        self.socket.sendall(self.request)
        seen = b''
        while not seen.endswith(b'0123'):
            data = self.socket.recv(65536)
            if not data: raise SystemExit('closed')
            if data.startswith(b'HTTP') and not data.startswith(b'HTTP/1.1 200'): raise SystemExit(data.decode())
            seen += data

def start(shape, folder):
    path = f'{folder}/{shape}.yaml'
    with open(path, 'w') as file: file.write(config(shape, folder))
    began = time.monotonic()
    proxy = subprocess.Popen([args.binary, '--config', path], stdout=subprocess.DEVNULL, stderr=open(f'{folder}/{shape}.log', 'w'))
    while True:
        try: socket.create_connection(('127.0.0.1', PORT)).close(); break
        except OSError:
            if proxy.poll() is not None: raise SystemExit(open(f'{folder}/{shape}.log').read()[:2000])
            time.sleep(.002)
    return proxy, path, time.monotonic() - began

def changes(shape, folder, proxy, path):
    """Changes one endpoint several times, while a client asks."""
    slowest, control = [], []
    client = Client(shape)
    for n in range(args.changes):
        with open(path + '.new', 'w') as file: file.write(config(shape, folder, n + 1))
        for _ in range(300): client.ask()
        before, worst = spent(proxy.pid, 'control'), 0
        os.rename(path + '.new', path)
        until = time.monotonic() + 3
        while time.monotonic() < until:
            began = time.monotonic(); client.ask(); worst = max(worst, time.monotonic() - began)
        slowest.append(worst * 1e3); control.append((spent(proxy.pid, 'control') - before) / 1e3)
    return slowest, control

def quiet(shape, proxy):
    """The slowest request of three seconds without a change: the noise of this machine."""
    client, worst, until = Client(shape), 0, time.monotonic() + 3
    while time.monotonic() < until:
        began = time.monotonic(); client.ask(); worst = max(worst, time.monotonic() - began)
    return worst * 1e3

def main():
    server = os.fork()
    if server == 0: serve()
    folder = tempfile.mkdtemp()
    certificates(folder)
    took = {}
    try:
        for shape in ('small', 'paths', 'hosts'):
            proxy, path, seconds = start(shape, folder)
            time.sleep(1.5)
            print(f'{shape}: start {seconds:.3f} s, {spent(proxy.pid) / 1e3:.1f} ms of CPU, {private(proxy.pid):.1f} MB', flush=True)
            client = Client(shape)
            for _ in range(500): client.ask()
            for _ in range(args.rounds):
                before = spent(proxy.pid, 'worker')
                for _ in range(4000): client.ask()
                took.setdefault(shape, []).append((spent(proxy.pid, 'worker') - before) / 4000)
            print(f'  CPU of a request {statistics.median(took[shape]):.2f} µs ({min(took[shape]):.2f} to {max(took[shape]):.2f})', flush=True)
            noise = [quiet(shape, proxy) for _ in range(3)]
            slowest, control = changes(shape, folder, proxy, path)
            print(f'  slowest request of 3 s: without a change {noise}, with one {[round(x, 2) for x in slowest]} ms')
            print(f'  control thread for a change {[round(x, 2) for x in control]} ms; afterwards {private(proxy.pid):.1f} MB', flush=True)
            proxy.send_signal(signal.SIGTERM); proxy.wait()
            if os.path.getsize(f'{folder}/{shape}.log'): shutil.copy(f'{folder}/{shape}.log', f'/tmp/large-{shape}.log')
    finally:
        os.kill(server, signal.SIGKILL); os.waitpid(server, 0)
        shutil.rmtree(folder)
main()
