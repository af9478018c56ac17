"""CPU of a proxy with an identity from its start until its listener accepts, and of its first mutual handshake: start.py BINARY... [RUNS]."""
import os, signal, socket, ssl, statistics, subprocess, sys, tempfile, time
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import in_flight as base
def handshake(folder):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(f'{folder}/root.pem')
    context.load_cert_chain(f'{folder}/front.pem', f'{folder}/front.key')
    with context.wrap_socket(socket.create_connection(('127.0.0.1', base.BACK))) as client:
        client.sendall(b'GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n')
        while client.recv(4096): pass
def run(command, folder):
    proxy = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while True:
            try: socket.create_connection(('127.0.0.1', base.BACK)).close(); break
            except OSError: time.sleep(.002)
        ready = base.cpu(proxy.pid)
        handshake(folder)
        return ready / 1e3, (base.cpu(proxy.pid) - ready) / 1e3
    finally:
        proxy.send_signal(signal.SIGKILL); proxy.wait()
if __name__ == '__main__':
    runs = next((int(one) for one in sys.argv[1:] if one.isdigit()), 30)
    for binary in (one for one in sys.argv[1:] if not one.isdigit()):
        with tempfile.TemporaryDirectory() as folder:
            command = base.pair(binary, folder)['back']
            all = [run(command, folder) for _ in range(runs)]
        for what, times in zip(('start to ready', 'first handshake'), zip(*all)):
            print(f'{os.path.basename(binary)}: {what}: median {statistics.median(times):.1f} ms, {min(times):.1f} to {max(times):.1f}, {runs} runs', flush=True)
