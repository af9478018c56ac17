//! The servers behind the proxy: real HTTP over real sockets, on one separate thread.
//!
//! A server processes one request at a time, in the order of arrival, like a small service with one
//! worker. The amount of work is in the request.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdListener};
use std::rc::Rc;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::sync::{Mutex, oneshot};
use tokio::task::LocalSet;

use super::Error;

/// The header with the amount of work of a request, as a multiple of the server's mean.
pub(super) const WORK: HeaderName = HeaderName::from_static("x-work");
/// The header with the index of the server that responded.
pub(super) const SERVED_BY: HeaderName = HeaderName::from_static("x-served-by");
/// The limit of a request's work, in mean service times.
const MOST_WORK: f64 = 20.0;

/// Servers that run until this is dropped.
#[derive(Debug)]
pub(super) struct Servers {
    pub(super) addresses: Vec<SocketAddr>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Servers {
    /// Starts one server for each mean service time.
    pub(super) fn start(service_times: &[Duration]) -> Result<Self, Error> {
        let sockets: Result<Vec<_>, _> = service_times.iter().map(|_| bind()).collect();
        let (sockets, addresses): (Vec<_>, Vec<_>) = sockets
            .map_err(Error::system("bind a server"))?
            .into_iter()
            .unzip();
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Error::system("start a runtime"))?;
        let (stop, stopped) = oneshot::channel::<()>();
        let servers: Vec<_> = sockets.into_iter().zip(service_times.to_vec()).collect();
        let thread = std::thread::Builder::new()
            .name("servers".into())
            .spawn(move || {
                LocalSet::new().block_on(&runtime, async move {
                    for (index, (socket, service_time)) in servers.into_iter().enumerate() {
                        tokio::task::spawn_local(listen(socket, index, service_time));
                    }
                    let _ = stopped.await;
                });
            })
            .map_err(Error::system("start a thread"))?;
        Ok(Self {
            addresses,
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn bind() -> std::io::Result<(StdListener, SocketAddr)> {
    let socket = StdListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.set_nonblocking(true)?;
    let address = socket.local_addr()?;
    Ok((socket, address))
}

/// A server.
#[derive(Debug)]
struct Server {
    index: usize,
    service_time: Duration,
    /// Its only worker; waits are served in order.
    worker: Mutex<()>,
}

async fn listen(socket: StdListener, index: usize, service_time: Duration) {
    let Ok(socket) = TcpListener::from_std(socket) else {
        return;
    };
    let server = Rc::new(Server {
        index,
        service_time,
        worker: Mutex::new(()),
    });
    while let Ok((tcp, _)) = socket.accept().await {
        let _ = tcp.set_nodelay(true);
        let server = Rc::clone(&server);
        tokio::task::spawn_local(async move {
            let service = service_fn(|request| {
                let server = Rc::clone(&server);
                async move { Ok::<_, Infallible>(server.answer(&request).await) }
            });
            // A disconnected client is no error here.
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(tcp), service)
                .await;
        });
    }
}

impl Server {
    async fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let work = request.headers().get(WORK);
        let work: Option<f64> = work.and_then(|work| work.to_str().ok()?.parse().ok());
        let work = work.filter(|work| work.is_finite()).unwrap_or(1.0);
        {
            let _turn = self.worker.lock().await;
            tokio::time::sleep(self.service_time.mul_f64(work.clamp(0.0, MOST_WORK))).await;
        }
        let text = format!("hello from server {}\n", self.index + 1);
        let mut response = Response::new(Full::new(Bytes::from(text)));
        let index = HeaderValue::from(self.index);
        response.headers_mut().insert(SERVED_BY, index);
        response
    }
}
