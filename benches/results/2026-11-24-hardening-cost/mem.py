import subprocess,socket,time,sys,tempfile,os,signal
def rss(p):
    d=dict(l.split(':',1) for l in open(f'/proc/{p}/status') if ':' in l); return int(d['VmRSS'].split()[0]),int(d['RssAnon'].split()[0])
for b in sys.argv[1:]:
    f=tempfile.NamedTemporaryFile('w',suffix='.yaml',delete=False)
    f.write("workers: 1\nadmin: {address: '127.0.0.1:18101'}\nlisteners:\n- {name: web, address: '127.0.0.1:18100', http: {virtual_hosts: [{domains: ['*'], routes: [{cluster: a}]}]}}\nclusters:\n- {name: a, endpoints: ['127.0.0.1:18080']}\n"); f.close()
    p=subprocess.Popen([b,'--config',f.name],stderr=subprocess.DEVNULL); time.sleep(1)
    def ask():
        s=socket.create_connection(('127.0.0.1',18100)); s.sendall(b'GET / HTTP/1.1\r\nhost: a\r\n\r\n'); s.recv(4096); return s
    s=ask(); s.close(); time.sleep(6); idle=rss(p.pid)
    c=[ask() for _ in range(900)]; time.sleep(8); held=rss(p.pid)
    for s in c: s.close()
    p.terminate(); p.wait(); os.unlink(f.name)
    print(os.path.basename(b),'idle kB (RSS, own)',idle,'900 idle connections',held,flush=True)
