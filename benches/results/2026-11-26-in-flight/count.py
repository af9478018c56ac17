"""Instructions of a proxy for a request among many in flight, outside the kernel: count.py BINARY [IN_FLIGHT...] [--pair].

As many keep-alive clients as requests in flight send in waves: the server answers when all requests of a wave have arrived, so that the
count does not depend on time. The difference of six waves and two, by their requests. --pair: over the mesh transport, each proxy by itself.
"""
import os, re, signal, socket, subprocess, sys, tempfile, time
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import in_flight as base
VALGRIND = ['valgrind', '--tool=callgrind', '--callgrind-out-file=/dev/null']
def run(commands, counted, number, waves, more=()):
    loop, proxies = base.Loop(1e9), {}
    loop.more = False
    try:
        for name, command in commands.items():
            before = VALGRIND + list(more) if name == counted else []
            proxies[name] = subprocess.Popen(before + command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            port = base.BACK if name == 'back' else base.FRONT
            for _ in range(900):
                try: socket.create_connection(('127.0.0.1', port)).close(); break
                except OSError: time.sleep(.1)
        clients = []
        for _ in range(number):
            clients.append(loop.connect(base.FRONT))
            loop.turn(0)
        for wave in range(waves):
            for n, client in enumerate(clients):
                client.send(base.REQUEST)
                if n % 64 == 0: loop.turn(0)
            limit = time.monotonic() + 600
            while loop.waiting < number and time.monotonic() < limit: loop.turn(time.monotonic() + 1)
            for _, one in loop.due: loop.sockets[one].send(base.ANSWER)
            loop.due.clear(); loop.waiting = 0
            while loop.answered < number * (wave + 1) and time.monotonic() < limit: loop.turn(time.monotonic() + 1)
        if loop.answered != number * waves: raise SystemExit(f'{loop.answered} answers of {number * waves}')
        said = {}
        for name in reversed(proxies):
            proxies[name].send_signal(signal.SIGTERM)
            if name == list(proxies)[-1]:
                for client in clients: client.close()
            said[name] = proxies[name].stderr.read(); proxies[name].wait()
        return int(re.search(r'Collected : (\d+)', said[counted]).group(1)), loop.accepted
    finally:
        for one in proxies.values(): one.kill()
        for one in loop.sockets.values(): one.close()
        loop.listener.close()
if __name__ == '__main__':
    import resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    binary = sys.argv[1]
    numbers = [int(n) for n in sys.argv[2:] if n.isdigit()] or [10, 100, 1000]
    kind = base.pair if '--pair' in sys.argv else base.plain
    for number in numbers:
        with tempfile.TemporaryDirectory() as folder:
            commands = kind(binary, folder)
            for counted in commands:
                few, _ = run(commands, counted, number, 2)
                many, accepted = run(commands, counted, number, 6)
                print(f'{counted:6} {number:6} in flight: {(many - few) / (4 * number):9.0f} instructions a request, '
                      f'{accepted} connections to the server', flush=True)
