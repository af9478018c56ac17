"""Cost of requests of HTTP/2 clients: cost.py instructions|calls|time [-c CASE,...] PROXY...

A PROXY is a maglor-proxy binary, or `haproxy`. h2load sends the requests, nginx answers them with 64 bytes.

instructions: executed outside the kernel a request, by valgrind's callgrind: the difference of two runs.
calls: system calls a request, by strace, which slows the proxy down so that more requests arrive together.
time: CPU time a request in microseconds, in alternating rounds; needs an idle machine. The proxy runs on processor 0,
everything else on processor 1.
"""
import argparse, collections, glob, os, re, shutil, signal, socket, statistics, subprocess, tempfile, time

BODY = '0123' * 16
PORTS = {name: 18300 + at for at, name in enumerate(
    ['origin', 'origin2', 'plain', 'plain_to2', 'tls', 'tls_to2'])}
# Name: the listener, h2load's connections and streams of each, and whether by HTTP/1.1.
CASES = {
    'h1-1c': ('plain', 1, 1, True),
    'h1-64c': ('plain', 64, 1, True),
    'h2c-1c-1s': ('plain', 1, 1, False),
    'h2c-1c-10s': ('plain', 1, 10, False),
    'h2c-1c-50s': ('plain', 1, 50, False),
    'h2c-64c-1s': ('plain', 64, 1, False),
    'h2c-h2-1c-1s': ('plain_to2', 1, 1, False),
    'h2c-h2-1c-50s': ('plain_to2', 1, 50, False),
    'h2c-h2-64c-1s': ('plain_to2', 64, 1, False),
    'tls-1c-1s': ('tls', 1, 1, False),
    'tls-1c-50s': ('tls', 1, 50, False),
    'tls-64c-1s': ('tls', 64, 1, False),
    'tls-h2-64c-1s': ('tls_to2', 64, 1, False),
}

NGINX = '''
daemon off; worker_processes 1; pid {dir}/nginx.pid; error_log {dir}/nginx.log;
events {{ worker_connections 4096; }}
http {{
  access_log off; keepalive_requests 1000000000; default_type text/plain; server_tokens off;
  client_body_temp_path {dir}/t1; proxy_temp_path {dir}/t2; fastcgi_temp_path {dir}/t3; uwsgi_temp_path {dir}/t4;
  scgi_temp_path {dir}/t5; http2_max_concurrent_streams 1000;
  server {{ listen 127.0.0.1:{origin} backlog=4096; listen 127.0.0.1:{origin2} http2 backlog=4096;
    location / {{ return 200 "{body}"; }} }}
}}
'''
HAPROXY = '''
global
    nbthread 1
    maxconn 4000
defaults
    mode http
    maxconn 4000
    timeout client 30s
    timeout server 30s
    timeout connect 30s
    option forwardfor
    http-reuse always
frontend plain
    bind 127.0.0.1:{plain}
    default_backend origin
frontend plain_to2
    bind 127.0.0.1:{plain_to2}
    default_backend origin2
frontend tls
    bind 127.0.0.1:{tls} ssl crt {dir}/both.pem ssl-min-ver TLSv1.3 alpn h2,http/1.1
    default_backend origin
frontend tls_to2
    bind 127.0.0.1:{tls_to2} ssl crt {dir}/both.pem ssl-min-ver TLSv1.3 alpn h2,http/1.1
    default_backend origin2
backend origin
    server a 127.0.0.1:{origin}
backend origin2
    server a 127.0.0.1:{origin2} proto h2
'''
LISTENER = "- {{name: {name}, address: '127.0.0.1:{port}',{tls} http: {{virtual_hosts: [{{domains: ['*'], routes: [{{cluster: {to}}}]}}]}}}}\n"
MAGLOR = '''workers: 1
listeners:
{listeners}
clusters:
- {{name: one, endpoints: ['127.0.0.1:{origin}']}}
- {{name: two, protocol: http2, endpoints: ['127.0.0.1:{origin2}']}}
'''

def wait_for(port):
    for _ in range(600):
        try:
            socket.create_connection(('127.0.0.1', port)).close()
            return
        except OSError:
            time.sleep(.1)
    raise SystemExit(f'nothing listens on {port}')

class Proxy:
    """A running proxy. `before` is a command that runs it."""
    def __init__(self, which, folder, before=()):
        if which == 'haproxy':
            self.name, path, text = 'haproxy', f'{folder}/haproxy.cfg', HAPROXY.format(dir=folder, **PORTS)
            command = [shutil.which('haproxy') or '/usr/sbin/haproxy', '-db', '-f', path]
        else:
            tls = f' tls: {{certificate: {folder}/leaf.pem, private_key: {folder}/leaf.key}},'
            listeners = ''.join(
                LISTENER.format(name=name.replace('_', '-'), port=PORTS[name], tls=tls if 'tls' in name else '',
                                to='two' if 'to2' in name else 'one')
                for name in ['plain', 'plain_to2', 'tls', 'tls_to2'])
            self.name, path = os.path.basename(which), f'{folder}/maglor.yaml'
            text = MAGLOR.format(listeners=listeners, **PORTS)
            command = [which, '--config', path]
        with open(path, 'w') as file:
            file.write(text)
        self.process = subprocess.Popen([*before, *command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        wait_for(PORTS['tls_to2'])

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        said = self.process.communicate()[1]
        return said

    def cpu(self):
        return sum(int(open(path).read().split()[0]) for path in glob.glob(f'/proc/{self.process.pid}/task/*/schedstat'))

def load(case, requests, pinned=()):
    listener, connections, streams, http1 = CASES[case]
    scheme = 'https' if 'tls' in listener else 'http'
    command = [*pinned, 'h2load', '-n', str(requests), '-c', str(connections), '-m', str(streams), '-t', '1',
               *(['--h1'] if http1 else []), f'{scheme}://127.0.0.1:{PORTS[listener]}/']
    said = subprocess.run(command, capture_output=True, text=True).stdout
    if f'{requests} succeeded' not in said or f'2xx' not in said:
        raise SystemExit(said)
    return said

def instructions(which, case, folder):
    def total(requests):
        proxy = Proxy(which, folder, ['valgrind', '--tool=callgrind', '--callgrind-out-file=' + OUT])
        load(case, requests)
        time.sleep(.5)
        return int(re.search(r'Collected : (\d+)', proxy.stop()).group(1))
    connections = CASES[case][1]
    few, many = max(500, 10 * connections), max(1500, 30 * connections)
    return (total(many) - total(few)) / (many - few)

def calls(which, case, folder):
    proxy = Proxy(which, folder)
    connections = CASES[case][1]
    load(case, 2 * max(500, connections))
    report = f'{folder}/strace'
    strace = subprocess.Popen(['strace', '-f', '-c', '-o', report, '-p', str(proxy.process.pid)], stderr=subprocess.PIPE)
    time.sleep(1)
    requests = 20000
    load(case, requests)
    strace.send_signal(signal.SIGINT)
    strace.wait()
    proxy.stop()
    counts = collections.Counter()
    for line in open(report):
        words = line.split()
        if len(words) >= 5 and words[3].isdigit() and words[-1] != 'total':
            counts[words[-1]] = int(words[3]) / requests
    return {name: count for name, count in counts.most_common() if count >= .005}

def times(binaries, cases, folder, rounds, seconds):
    for case in cases:
        proxies, found = [], collections.defaultdict(list)
        requests = {}
        for _ in range(rounds):
            for which in binaries:
                proxy = Proxy(which, folder, ['taskset', '-c', '0'])
                if which not in requests:
                    began = time.time()
                    load(case, 6400, ['taskset', '-c', '1'])
                    requests[which] = max(6400, int(6400 * seconds / (time.time() - began)))
                else:
                    load(case, 6400, ['taskset', '-c', '1'])
                before = proxy.cpu()
                load(case, requests[which], ['taskset', '-c', '1'])
                found[which].append((proxy.cpu() - before) / requests[which] / 1000)
                proxy.stop()
        first = statistics.median(found[binaries[-1]])
        for which in binaries:
            median = statistics.median(found[which])
            ratios = [a / b for a, b in zip(found[which], found[binaries[-1]])]
            print(f'{case:15} {os.path.basename(which):20} {median:7.2f} µs, of the last one {statistics.median(ratios):.2f}'
                  f' ({min(ratios):.2f} to {max(ratios):.2f})', flush=True)

def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('what', choices=['instructions', 'calls', 'time'])
    parser.add_argument('-c', default='')
    parser.add_argument('-r', type=int, default=5)
    parser.add_argument('-s', type=float, default=3)
    parser.add_argument('-o', default='/dev/null')
    parser.add_argument('proxy', nargs='+')
    options = parser.parse_args()
    global OUT
    OUT = options.o
    cases = [case for case in CASES if not options.c or case in options.c.split(',')]
    folder = tempfile.mkdtemp()
    os.chmod(folder, 0o755)
    subprocess.run(['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '9', '-subj',
                    '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost', '-keyout', f'{folder}/leaf.key', '-out', f'{folder}/leaf.pem'], check=True, capture_output=True)
    with open(f'{folder}/both.pem', 'w') as both:
        both.write(open(f'{folder}/leaf.pem').read() + open(f'{folder}/leaf.key').read())
    with open(f'{folder}/nginx.conf', 'w') as file:
        file.write(NGINX.format(dir=folder, body=BODY, **PORTS))
    nginx = subprocess.Popen(['taskset', '-c', '1', shutil.which('nginx') or '/usr/sbin/nginx', '-c', f'{folder}/nginx.conf'])
    try:
        wait_for(PORTS['origin2'])
        if options.what == 'time':
            times(options.proxy, cases, folder, options.r, options.s)
            return
        for case in cases:
            for which in options.proxy:
                name = os.path.basename(which)
                if options.what == 'instructions':
                    print(f'{case:15} {name:20} {instructions(which, case, folder):8.0f}', flush=True)
                else:
                    each = calls(which, case, folder)
                    print(f'{case:15} {name:20} {sum(each.values()):.2f}:', ', '.join(f'{n} {c:.2f}' for n, c in each.items()), flush=True)
    finally:
        nginx.send_signal(signal.SIGTERM)
        nginx.wait()
        shutil.rmtree(folder)

main()
