"""Instructions that the proxies of a pair take for a request, outside the kernel: count_pair.py MAGLOR_CLI BINARY...

A pair with mutual TLS; eight clients send one request each, all at once, and again when all have their responses, so
that the requests share connections by the mesh transport. One proxy at a time runs under valgrind's callgrind, with 500
and with 2500 requests; the difference is divided by 2000.
"""
import importlib.util, os, re, signal, socket, subprocess, sys, tempfile, threading, time

here = os.path.dirname(os.path.abspath(__file__))
arguments, sys.argv = sys.argv[1:], [sys.argv[0]]
spec = importlib.util.spec_from_file_location('count', os.path.join(here, '..', '2026-11-25-http2', 'count.py'))
count = importlib.util.module_from_spec(spec)
spec.loader.exec_module(count)

CLIENT, INBOUND, CLIENTS = 18490, 18491, 8
REQUEST = b'GET / HTTP/1.1\r\nhost: a\r\nuser-agent: bench\r\naccept: */*\r\n\r\n'
TEXT = """workers: 1
identity: {{certificate: {folder}/certificate.pem, private_key: {folder}/private_key.pem, trust_bundle: {folder}/trust_bundle.pem}}
listeners:
- name: web
  address: 127.0.0.1:{listen}
  {tls_in}
  http: {{virtual_hosts: [{{domains: ['*'], routes: [{{cluster: a}}]}}]}}
clusters:
- {{name: a, endpoints: ['127.0.0.1:{to}']{tls_out}}}
"""


def connect():
    for _ in range(600):
        try:
            return socket.create_connection(('127.0.0.1', CLIENT))
        except OSError:
            time.sleep(.1)
    raise SystemExit('no proxy')


def answered(client):
    seen = b''
    while not seen.endswith(b'0123'):
        data = client.recv(65536)
        if not data:
            raise SystemExit('closed')
        seen += data
    if not seen.startswith(b'HTTP/1.1 200'):
        raise SystemExit(seen[:100])


def run(binary, configurations, counted, requests):
    valgrind = ['valgrind', '--tool=callgrind', '--callgrind-out-file=/dev/null']
    proxies = [subprocess.Popen([*(valgrind if at == counted else []), binary, '--config', path], stderr=subprocess.PIPE,
                                stdout=subprocess.DEVNULL, text=True) for at, path in enumerate(configurations)]
    time.sleep(8)
    clients = [connect() for _ in range(CLIENTS)]
    for _ in range(requests // CLIENTS):
        for client in clients:
            client.sendall(REQUEST)
        for client in clients:
            answered(client)
    for client in clients:
        client.close()
    time.sleep(.3)
    for proxy in proxies:
        proxy.send_signal(signal.SIGTERM)
    said = [proxy.communicate()[1] for proxy in proxies]
    return int(re.search(r'Collected : (\d+)', said[counted]).group(1))


cli, binaries = os.path.abspath(arguments[0]), arguments[1:]
with tempfile.TemporaryDirectory() as folder:
    issue = lambda *words: subprocess.run([cli, 'identity', *words], check=True, stdout=subprocess.DEVNULL, cwd=folder)
    issue('ca', '--trust-domain', 'mesh.test', '--out', 'ca')
    issue('issue', '--ca', 'ca', '--namespace', 'shop', '--service-account', 'cart', '--out', 'cart')

    def write(name, **values):
        path = os.path.join(folder, name)
        with open(path, 'w') as file:
            file.write(TEXT.format(folder=os.path.join(folder, 'cart'), **values))
        return path

    pair = [write('in.yaml', listen=INBOUND, to=count.UPSTREAM, tls_in='tls: mesh', tls_out=''),
            write('out.yaml', listen=CLIENT, to=INBOUND, tls_in='', tls_out=', tls: mesh')]
    for binary in binaries:
        for name, counted in [('inbound', 0), ('outbound', 1)]:
            few, many = (run(binary, pair, counted, requests) for requests in (504, 2504))
            print(os.path.basename(binary), name, (many - few) / 2000, flush=True)
