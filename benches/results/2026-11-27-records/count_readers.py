"""Instructions of a request by HTTP/1.1, outside the kernel, by what reads its record: count_readers.py BINARY READERS...

As count_h1.py of 2026-11-25-floods. READERS are `default` (the configuration of that script), `none`, `stories`,
`traces` (1 % sampled) and `old-traces`, for programs without `stories`. The collector does not exist.
"""
import os, sys, tempfile
binary, readers = sys.argv[1], sys.argv[2:]
here = os.path.dirname(os.path.abspath(__file__))
script = os.path.join(here, '..', '2026-11-25-floods', 'count_h1.py')
sys.argv = [script]
names = {'__file__': script, '__name__': 'count_h1'}
exec(open(script).read().split('for binary in binaries:')[0], names)
count = names['count']
TRACING = 'tracing: {cluster: c, sampling: {percent: 1}}\n'
ADDED = {
    'default': '', 'none': 'stories: false\n', 'stories': 'stories: true\n',
    'traces': 'stories: false\n' + TRACING, 'old-traces': TRACING,
}
temporary = tempfile.NamedTemporaryFile
for reader in readers:
    added = ADDED[reader]
    class File:
        def __init__(self, *arguments, **named):
            self.file = temporary(*arguments, **named)
            self.name = self.file.name
        def __enter__(self):
            return self
        def __exit__(self, *why):
            self.file.close()
        def write(self, text):
            more = "- {name: c, endpoints: ['127.0.0.1:9']}\n" if 'tracing' in added else ''
            self.file.write(added + text + more)
    tempfile.NamedTemporaryFile = File
    few, many = count.run(binary, 500, 1), count.run(binary, 2500, 1)
    print(os.path.basename(binary), reader, (many - few) / 2000, flush=True)
