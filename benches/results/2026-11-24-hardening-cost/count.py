import subprocess,sys,socket,time,re,os,signal,tempfile
def run(binary,cfg,port,n):
    f=tempfile.NamedTemporaryFile('w',suffix='.yaml',delete=False); f.write(cfg); f.close()
    p=subprocess.Popen(['valgrind','--tool=callgrind','--callgrind-out-file=/dev/null',binary,'--config',f.name],stderr=subprocess.PIPE,stdout=subprocess.DEVNULL,text=True)
    for _ in range(600):
        try: s=socket.create_connection(('127.0.0.1',port)); break
        except OSError: time.sleep(.1)
    s.setsockopt(socket.IPPROTO_TCP,socket.TCP_NODELAY,1)
    req=b'GET / HTTP/1.1\r\nhost: a\r\nuser-agent: bench\r\naccept: */*\r\n\r\n'
    for i in range(n):
        s.sendall(req); b=b''
        while not b.endswith(b'0123'):
            r=s.recv(4096)
            if not r: raise SystemExit('closed after %d'%i)
            b+=r
    s.close(); time.sleep(.3); p.send_signal(signal.SIGTERM); err=p.stderr.read(); p.wait(); os.unlink(f.name)
    return int(re.search(r'Collected : (\d+)',err).group(1))
def cfg(port,up,extra=''):
    return f"workers: 1\nlisteners:\n- {{name: web, address: '127.0.0.1:{port}', http: {{virtual_hosts: [{{domains: ['*'], routes: [{{cluster: a}}]}}]}}}}\nclusters:\n- {{name: a, endpoints: ['127.0.0.1:{up}']{extra}}}\n"
for b in sys.argv[1:]:
    for name,up,extra in [('h1','18080',''),('h2','18081',', protocol: http2')]:
        c=cfg(18100,up,extra)
        a1=run(b,c,18100,500); a2=run(b,c,18100,2500)
        print(os.path.basename(b),name,(a2-a1)/2000,flush=True)
