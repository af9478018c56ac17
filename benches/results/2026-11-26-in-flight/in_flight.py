"""CPU and memory of a proxy for requests that wait a second each: in_flight.py BINARY [IN_FLIGHT...] [--pair] [--haproxy].

As many keep-alive clients as requests in flight; each sends its next request when the response has arrived. A server in this process
answers each request after a second, or --wait=SECONDS. CPU is that of the proxy's threads in the kernel's accounts (/proc/PID/task/*/schedstat) over
complete seconds, less what the proxy takes without requests; memory is the private resident memory while all requests wait, less that
before the first, by their number. --pair: two proxies with mutual TLS between them, each by itself. --haproxy: HAProxy beside them.
"""
import functools, heapq, os, re, select, signal, socket, subprocess, sys, tempfile, time
here = os.path.dirname(os.path.abspath(__file__))
FRONT, BACK, UPSTREAM = 18390, 18391, 18392
REQUEST = b'GET / HTTP/1.1\r\nhost: a\r\nuser-agent: bench\r\naccept: */*\r\n\r\n'
ANSWER = b'HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n0123'

class Loop:
    """Clients and server on one epoll."""
    def __init__(self, wait):
        self.wait, self.poll, self.sockets = wait, select.epoll(), {}
        self.due, self.answered, self.waiting, self.accepted, self.more = [], 0, 0, 0, True
        self.listener = socket.socket(); self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(('127.0.0.1', UPSTREAM)); self.listener.listen(16384); self.listener.setblocking(False)
        self.poll.register(self.listener.fileno(), select.EPOLLIN)
        self.clients = set()
    def connect(self, port):
        client = socket.create_connection(('127.0.0.1', port)); client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.clients.add(client.fileno()); self.watch(client)
        return client
    def watch(self, one):
        self.sockets[one.fileno()] = one; self.poll.register(one.fileno(), select.EPOLLIN)
    def turn(self, until):
        now = time.monotonic()
        while self.due and self.due[0][0] <= now:
            _, number = heapq.heappop(self.due)
            if number in self.sockets: self.sockets[number].send(ANSWER); self.waiting -= 1
        limit = min(until, self.due[0][0] if self.due else until) - time.monotonic()
        for number, _ in self.poll.poll(max(0, limit), 4096):
            if number == self.listener.fileno():
                while True:
                    try: one, _ = self.listener.accept()
                    except BlockingIOError: break
                    one.setblocking(False); one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self.accepted += 1; self.watch(one)
                continue
            one = self.sockets[number]
            try: data = one.recv(65536)
            except (BlockingIOError, ConnectionResetError): data = b''
            if not data:
                if number in self.clients: raise SystemExit('a client was closed')
                del self.sockets[number]; self.poll.unregister(number); one.close()
            elif number in self.clients:
                # The body may arrive after its head.
                if data.startswith(b'HTTP') and not data.startswith(b'HTTP/1.1 200'): raise SystemExit(data.decode())
                if data.endswith(b'0123'):
                    self.answered += 1
                    if self.more: one.send(REQUEST)
            else:
                self.waiting += 1; heapq.heappush(self.due, (time.monotonic() + self.wait, number))
    def run(self, seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until: self.turn(until)

def cpu(pid):
    total = 0
    for task in os.listdir(f'/proc/{pid}/task'):
        with open(f'/proc/{pid}/task/{task}/schedstat') as file: total += int(file.read().split()[0])
    return total / 1e3
def private(pid):
    with open(f'/proc/{pid}/status') as file: return int(re.search(r'RssAnon:\s+(\d+)', file.read()).group(1))
def plain(binary, folder):
    with open(f'{folder}/plain.yaml', 'w') as file:
        file.write(f"workers: 1\nlisteners:\n- {{name: web, address: '127.0.0.1:{FRONT}', http: {{virtual_hosts: [{{domains: ['*'], routes: "
                   f"[{{cluster: a}}]}}]}}}}\nclusters:\n- {{name: a, endpoints: ['127.0.0.1:{UPSTREAM}']}}\n")
    return {'proxy': [binary, '--config', file.name]}
def haproxy(_, folder):
    with open(f'{folder}/haproxy.cfg', 'w') as file:
        file.write(f"global\n maxconn 9500\n nbthread 1\ndefaults\n mode http\n timeout connect 5s\n timeout client 60s\n timeout server 60s\n"
                   f" http-reuse always\nfrontend f\n bind 127.0.0.1:{FRONT} backlog 16384\n default_backend b\nbackend b\n server a 127.0.0.1:{UPSTREAM}\n")
    return {'haproxy': ['haproxy', '-db', '-f', file.name]}
def pair(binary, folder):
    mesh = certificates()
    mesh.FRONT, mesh.BACK, mesh.UPSTREAM = FRONT, BACK, UPSTREAM
    mesh.identities(folder)
    return {name: [binary, '--config', mesh.config(folder, name)] for name in ('back', 'front')}
@functools.cache
def certificates():
    from importlib import util
    spec = util.spec_from_file_location('mesh', os.path.join(here, '..', '2026-11-25-hardening', 'count_mesh.py'))
    # Its server listens on another port; only the certificates and the configuration are used.
    mesh = util.module_from_spec(spec); argv, sys.argv = sys.argv, sys.argv[:1]; spec.loader.exec_module(mesh); sys.argv = argv
    return mesh
def measure(commands, number, wait=1.0):
    loop, proxies = Loop(wait), {}
    try:
        for name, command in commands.items():
            proxies[name] = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(300):
            try: socket.create_connection(('127.0.0.1', FRONT)).close(); break
            except OSError: time.sleep(.1)
        time.sleep(1.5)
        at_rest = {name: private(one.pid) for name, one in proxies.items()}
        before = {name: cpu(one.pid) for name, one in proxies.items()}
        time.sleep(5)
        rest = {name: (cpu(one.pid) - before[name]) / 5 for name, one in proxies.items()}
        # Spread over a second, so that requests do not end at once.
        begin = time.monotonic()
        for n in range(number):
            loop.connect(FRONT).send(REQUEST)
            due = begin + n / max(number, 2500)
            while time.monotonic() < due or n % 64 == 0:
                loop.turn(due)
                if time.monotonic() >= due: break
        # The first round opens connections.
        loop.run(4)
        seconds = 30 if number < 100 else 15
        answered, begin = loop.answered, time.monotonic()
        before = {name: cpu(one.pid) for name, one in proxies.items()}
        loop.run(seconds)
        took, requests = time.monotonic() - begin, loop.answered - answered
        spent = {name: cpu(one.pid) - before[name] for name, one in proxies.items()}
        memory = {name: private(one.pid) - at_rest[name] for name, one in proxies.items()}
        for name in proxies:
            print(f'{name:8} {number:6} in flight: {requests / took:7.0f}/s, {(spent[name] - rest[name] * took) / requests:6.1f} us a request, '
                  f'{memory[name] / number:6.2f} kB a waiting request, {loop.accepted} connections to the server', flush=True)
    finally:
        for one in proxies.values(): one.send_signal(signal.SIGKILL); one.wait()
        for one in loop.sockets.values(): one.close()
        loop.listener.close()
if __name__ == '__main__':
    import resource
    # 10 000 need two descriptors each here, and two in the proxy.
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    binary = sys.argv[1]
    wait = next((float(one[7:]) for one in sys.argv if one.startswith('--wait=')), 1.0)
    numbers = [int(n) for n in sys.argv[2:] if n.isdigit()] or [10, 100, 1000, 10000]
    kinds = [pair] if '--pair' in sys.argv else [plain]
    if '--haproxy' in sys.argv: kinds.append(haproxy)
    for number in numbers:
        for kind in kinds:
            with tempfile.TemporaryDirectory() as folder: measure(kind(binary, folder), number, wait)
