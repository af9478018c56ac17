"""Instructions that a proxy takes for a request by HTTP/1.1, outside the kernel: count_h1.py BINARY...

As count.py of 2026-11-25-http2, with one keep-alive connection and one request at a time.
"""
import importlib.util, os, sys
sys.argv, binaries = sys.argv[:1], sys.argv[1:]
here = os.path.dirname(os.path.abspath(__file__))
spec = importlib.util.spec_from_file_location('count', os.path.join(here, '..', '2026-11-25-http2', 'count.py'))
count = importlib.util.module_from_spec(spec)
spec.loader.exec_module(count)
import socket, time
REQUEST = b'GET / HTTP/1.1\r\nhost: a\r\nuser-agent: bench\r\naccept: */*\r\n\r\n'
class Client:
    def __init__(self):
        for _ in range(600):
            try:
                self.socket = socket.create_connection(('127.0.0.1', count.PORT)); break
            except OSError:
                time.sleep(.1)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    def ask(self, _):
        self.socket.sendall(REQUEST)
        seen = b''
        while not seen.endswith(b'0123'):
            data = self.socket.recv(65536)
            if not data: raise SystemExit('closed')
            seen += data
count.Client = Client
for binary in binaries:
    few, many = count.run(binary, 500, 1), count.run(binary, 2500, 1)
    print(os.path.basename(binary), 'HTTP/1.1', (many - few) / 2000, flush=True)
