"""Instructions that a proxy takes for a request by h2c, outside the kernel: count.py BINARY...

A run of 500 and one of 2500 requests on one connection under valgrind's callgrind, and the difference by 2000. With
`pipelined`, 50 streams are open at a time.
"""
import os, re, signal, socket, struct, subprocess, sys, tempfile, threading, time

PORT, UPSTREAM = 18190, 18191
ANSWER = (b'HTTP/1.1 200 OK\r\nServer: nginx\r\nDate: Wed, 25 Nov 2026 09:00:00 GMT\r\nContent-Type: text/plain\r\n'
          b'Content-Length: 64\r\nLast-Modified: Wed, 25 Nov 2026 08:00:00 GMT\r\nConnection: keep-alive\r\n'
          b'ETag: "6744-40"\r\nAccept-Ranges: bytes\r\n\r\n' + b'0123' * 16)

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

def frame(kind, flags, stream, payload=b''):
    return struct.pack('>I', len(payload))[1:] + bytes([kind, flags]) + struct.pack('>I', stream) + payload

HEAD = b'\x82\x86\x84\x41\x01a\x0f\x2b\x05bench\x0f\x04\x03*/*'

class Client:
    def __init__(self):
        for _ in range(600):
            try:
                self.socket = socket.create_connection(('127.0.0.1', PORT))
                break
            except OSError:
                time.sleep(.1)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n' + frame(4, 0, 0) + frame(8, 0, 0, struct.pack('>I', 1 << 30)))
        self.seen, self.next, self.answered = b'', 1, 0

    def ask(self, count):
        requests = b''
        for _ in range(count):
            requests += frame(1, 5, self.next, HEAD)
            self.next += 2
        self.socket.sendall(requests)
        until = self.answered + count
        while self.answered < until:
            data = self.socket.recv(65536)
            if not data:
                raise SystemExit('closed after %d' % self.answered)
            self.seen += data
            while len(self.seen) >= 9:
                length = int.from_bytes(self.seen[:3], 'big')
                if len(self.seen) < 9 + length:
                    break
                kind, flags = self.seen[3], self.seen[4]
                if kind in (3, 7):
                    raise SystemExit('reset, or goaway')
                if kind == 4 and not flags & 1:
                    self.socket.sendall(frame(4, 1, 0))
                self.answered += kind in (0, 1) and flags & 1
                self.seen = self.seen[9 + length:]

def run(binary, requests, at_once):
    config = (f"workers: 1\nlisteners:\n- {{name: web, address: '127.0.0.1:{PORT}', http: {{virtual_hosts: "
              f"[{{domains: ['*'], routes: [{{cluster: a}}]}}]}}}}\nclusters:\n- {{name: a, endpoints: ['127.0.0.1:{UPSTREAM}']}}\n")
    with tempfile.NamedTemporaryFile('w', suffix='.yaml', delete=False) as file:
        file.write(config)
    proxy = subprocess.Popen(['valgrind', '--tool=callgrind', '--callgrind-out-file=/dev/null', binary, '--config', file.name],
                             stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    client = Client()
    for _ in range(requests // at_once):
        client.ask(at_once)
    client.socket.close()
    time.sleep(.3)
    proxy.send_signal(signal.SIGTERM)
    said = proxy.stderr.read()
    proxy.wait()
    os.unlink(file.name)
    return int(re.search(r'Collected : (\d+)', said).group(1))

threading.Thread(target=upstream, daemon=True).start()
for binary in sys.argv[1:]:
    for name, at_once in [('one at a time', 1), ('50 at a time', 50)]:
        few, many = run(binary, 500, at_once), run(binary, 2500, at_once)
        print(os.path.basename(binary), name, (many - few) / 2000, flush=True)
