"""Instructions that a proxy takes for a request over the mesh transport, outside the kernel: count_mesh.py BINARY...

Two proxies of the same binary with mutual TLS between them, HTTP/1.1 on both ends, one keep-alive connection and one request at
a time. One of the two runs under valgrind's callgrind; the difference of 2500 and 500 requests, by 2000.
"""
import http.client, os, re, signal, socket, subprocess, sys, tempfile, threading, time
FRONT, BACK, UPSTREAM = 18290, 18291, 18292
ANSWER = (b'HTTP/1.1 200 OK\r\nServer: nginx\r\nDate: Wed, 25 Nov 2026 09:00:00 GMT\r\nContent-Type: text/plain\r\n'
          b'Content-Length: 64\r\nLast-Modified: Wed, 25 Nov 2026 08:00:00 GMT\r\nConnection: keep-alive\r\n'
          b'ETag: "6744-40"\r\nAccept-Ranges: bytes\r\n\r\n' + b'0123' * 16)
REQUEST = b'GET / HTTP/1.1\r\nhost: a\r\nuser-agent: bench\r\naccept: */*\r\n\r\n'
def upstream():
    server = socket.create_server(('127.0.0.1', UPSTREAM), backlog=256)
    def serve(connection):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        seen = b''
        while data := connection.recv(65536):
            seen += data
            while b'\r\n\r\n' in seen:
                seen = seen.split(b'\r\n\r\n', 1)[1]
                connection.sendall(ANSWER)
    while True:
        connection, _ = server.accept()
        threading.Thread(target=serve, args=(connection,), daemon=True).start()
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
def connect():
    for _ in range(900):
        try: return socket.create_connection(('127.0.0.1', FRONT))
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
    proxies = {}
    for name in ('back', 'front'):
        before = ['valgrind', '--tool=callgrind', '--callgrind-out-file=/dev/null'] if name == counted else []
        proxies[name] = subprocess.Popen(before + [binary, '--config', config(folder, name)], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        if name == 'back':
            for _ in range(900):
                try: socket.create_connection(('127.0.0.1', BACK)).close(); break
                except OSError: time.sleep(.1)
    client = connect(); client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    ask(client, requests); client.close(); time.sleep(.3)
    said = {}
    for name in ('front', 'back'):
        proxies[name].send_signal(signal.SIGTERM); said[name] = proxies[name].stderr.read(); proxies[name].wait()
    return int(re.search(r'Collected : (\d+)', said[counted]).group(1))
threading.Thread(target=upstream, daemon=True).start()
folder = tempfile.mkdtemp(); identities(folder)
for binary in sys.argv[1:]:
    for counted in ('front', 'back'):
        few, many = run(binary, folder, counted, 500), run(binary, folder, counted, 2500)
        print(os.path.basename(binary), counted, (many - few) / 2000, flush=True)
