"""Memory of a request that waits for its response: memory.py MAGLOR_CLI N PROXY...

N requests of a client, each over its own connection, are sent through one proxy and through a pair with mutual TLS to a
server that does not answer. Prints the growth of the proxies' anonymous memory, in kB a request. MAGLOR_CLI issues the
identity of the pair.
"""
import os, re, socket, subprocess, sys, tempfile, time

REQUEST = b'GET / HTTP/1.1\r\nhost: a\r\nuser-agent: bench\r\naccept: */*\r\n\r\n'
CLIENT, INBOUND, SERVER = 18490, 18491, 18492
TEXT = """workers: 1
{identity}
listeners:
- name: web
  address: 127.0.0.1:{listen}
  {tls_in}
  http: {{virtual_hosts: [{{domains: ['*'], routes: [{{cluster: a}}]}}]}}
clusters:
- {{name: a, endpoints: ['127.0.0.1:{to}']{tls_out}}}
"""


def anonymous(process):
    with open(f'/proc/{process.pid}/status') as status:
        return int(re.search(r'RssAnon:\s+(\d+)', status.read()).group(1))


def measure(binary, configurations, count, server):
    processes = [subprocess.Popen([binary, '--config', path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                 for path in configurations]
    try:
        for _ in range(100):
            try:
                socket.create_connection(('127.0.0.1', CLIENT)).close()
                break
            except OSError:
                time.sleep(.05)
        time.sleep(1.5)
        before = [anonymous(process) for process in processes]
        kept = []
        for _ in range(count):
            client = socket.create_connection(('127.0.0.1', CLIENT))
            client.send(REQUEST)
            accepted, _ = server.accept()
            accepted.recv(4096)
            kept += [client, accepted]
        time.sleep(2)
        return [(anonymous(process) - old) / count for process, old in zip(processes, before)]
    finally:
        for process in processes:
            process.kill()
            process.wait()


cli, count, binaries = os.path.abspath(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
server = socket.create_server(('127.0.0.1', SERVER), backlog=1024)
with tempfile.TemporaryDirectory() as folder:
    run = lambda *words: subprocess.run([cli, *words], check=True, stdout=subprocess.DEVNULL, cwd=folder)
    run('identity', 'ca', '--trust-domain', 'mesh.test', '--out', 'ca')
    run('identity', 'issue', '--ca', 'ca', '--namespace', 'shop', '--service-account', 'cart', '--out', 'cart')
    files = ['certificate', 'private_key', 'trust_bundle']
    identity = 'identity: {%s}' % ', '.join(f'{name}: {folder}/cart/{name}.pem' for name in files)

    def write(name, **values):
        path = os.path.join(folder, name)
        with open(path, 'w') as file:
            file.write(TEXT.format(**values))
        return path

    alone = [write('alone.yaml', identity='', listen=CLIENT, to=SERVER, tls_in='', tls_out='')]
    pair = [write('in.yaml', identity=identity, listen=INBOUND, to=SERVER, tls_in='tls: mesh', tls_out=''),
            write('out.yaml', identity=identity, listen=CLIENT, to=INBOUND, tls_in='', tls_out=', tls: mesh')]
    for binary in binaries:
        one = measure(binary, alone, count, server)
        both = measure(binary, pair, count, server)
        print(f'{os.path.basename(binary)}: alone {one[0]:.2f} kB; pair: inbound {both[0]:.2f}, outbound {both[1]:.2f} kB',
              flush=True)
