"""Instructions that a proxy takes for a request over the mesh transport, outside the kernel: count_mesh.py BINARY...

Two proxies of the same binary with mutual TLS between them, HTTP/1.1 on both ends, one keep-alive connection and one request at
a time. One of the two runs under valgrind's callgrind; the difference of 2500 and 500 requests, by 2000.
"""
import importlib.util, os, re, signal, socket, subprocess, sys, tempfile, time
sys.argv, binaries = sys.argv[:1], sys.argv[1:]
here = os.path.dirname(os.path.abspath(__file__))
spec = importlib.util.spec_from_file_location('count', os.path.join(here, '..', '2026-11-25-http2', 'count.py'))
# Its server answers while this runs.
count = importlib.util.module_from_spec(spec)
spec.loader.exec_module(count)
FRONT, BACK, UPSTREAM = 18290, 18291, count.UPSTREAM
REQUEST = b'GET / HTTP/1.1\r\nhost: a\r\nuser-agent: bench\r\naccept: */*\r\n\r\n'
def sh(*args, **more): subprocess.run(args, check=True, capture_output=True, **more)
def identities(folder):
    key = lambda name: sh('openssl', 'genpkey', '-algorithm', 'EC', '-pkeyopt', 'ec_paramgen_curve:P-256', '-out', f'{folder}/{name}.key')
    key('root')
    sh('openssl', 'req', '-x509', '-new', '-key', f'{folder}/root.key', '-subj', '/CN=root', '-days', '30', '-out', f'{folder}/root.pem')
    for name in ('front', 'back'):
        key(name)
        sh('openssl', 'req', '-new', '-key', f'{folder}/{name}.key', '-subj', '/', '-out', f'{folder}/{name}.csr')
        with open(f'{folder}/{name}.ext', 'w') as file:
            file.write(f'subjectAltName=critical,URI:spiffe://mesh.test/ns/shop/sa/{name}\nkeyUsage=critical,digitalSignature\n'
                       'extendedKeyUsage=serverAuth,clientAuth\nbasicConstraints=critical,CA:FALSE\n')
        sh('openssl', 'x509', '-req', '-in', f'{folder}/{name}.csr', '-CA', f'{folder}/root.pem', '-CAkey', f'{folder}/root.key', '-CAcreateserial',
           '-days', '30', '-extfile', f'{folder}/{name}.ext', '-out', f'{folder}/{name}.pem')
def config(folder, name):
    identity = (f"workers: 1\nidentity: {{certificate: '{folder}/{name}.pem', private_key: '{folder}/{name}.key', "
                f"trust_bundle: '{folder}/root.pem'}}\n")
    port, tls, endpoint, more = (FRONT, '', BACK, ', tls: mesh') if name == 'front' else (BACK, 'tls: mesh, ', UPSTREAM, '')
    text = identity + (f"listeners:\n- {{name: web, address: '127.0.0.1:{port}', {tls}http: {{virtual_hosts: [{{domains: ['*'], routes: "
                       f"[{{cluster: a}}]}}]}}}}\nclusters:\n- {{name: a, endpoints: ['127.0.0.1:{endpoint}']{more}}}\n")
    with open(f'{folder}/{name}.yaml', 'w') as file: file.write(text)
    return file.name
def connect(port):
    for _ in range(900):
        try: return socket.create_connection(('127.0.0.1', port))
        except OSError: time.sleep(.1)
def ask(client, count):
    for n in range(count):
        client.sendall(REQUEST)
        seen = b''
        while not seen.endswith(b'0123'):
            data = client.recv(65536)
            if not data: raise SystemExit('closed after %d' % n)
            seen += data
            if b' 200 ' not in seen[:20]: raise SystemExit(seen.decode())
def run(binary, folder, counted, requests):
    proxies, said = {}, {}
    try:
        for name, port in (('back', BACK), ('front', FRONT)):
            before = ['valgrind', '--tool=callgrind', '--callgrind-out-file=/dev/null'] if name == counted else []
            proxies[name] = subprocess.Popen(before + [binary, '--config', config(folder, name)], stderr=subprocess.PIPE,
                                             stdout=subprocess.DEVNULL, text=True)
            client = connect(port)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ask(client, requests); client.close(); time.sleep(.3)
        for name in ('front', 'back'):
            proxies[name].send_signal(signal.SIGTERM); said[name] = proxies[name].stderr.read(); proxies[name].wait()
    finally:
        for proxy in proxies.values(): proxy.kill()
    return int(re.search(r'Collected : (\d+)', said[counted]).group(1))
folder = tempfile.mkdtemp(); identities(folder)
for binary in binaries:
    for counted in ('front', 'back'):
        few, many = run(binary, folder, counted, 500), run(binary, folder, counted, 2500)
        print(os.path.basename(binary), counted, (many - few) / 2000, flush=True)
