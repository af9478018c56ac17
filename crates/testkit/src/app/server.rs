//! Serves HTTP/1.1 and HTTP/2 with prior knowledge, on one port of one thread.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::rc::Rc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto;
use socket2::{Domain, Socket, Type};
use tokio::net::TcpListener;

use super::error::AppError;

/// Runs a connection's streams on this thread.
#[derive(Clone, Copy, Debug)]
struct LocalExecutor;

impl<F: Future<Output = ()> + 'static> hyper::rt::Executor<F> for LocalExecutor {
    fn execute(&self, future: F) {
        tokio::task::spawn_local(future);
    }
}

/// The length of the accept queue; the kernel may limit it further.
const BACKLOG: i32 = 4096;

/// Opens a listening socket, so that no connection is refused once the application reports that it
/// is ready.
pub(super) fn listen(address: SocketAddr) -> Result<StdListener, AppError> {
    let bound = || {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok(socket.into())
    };
    bound().map_err(AppError::io(format!("listen on {address}")))
}

/// Serves connections until the task is dropped.
pub(super) async fn serve<S, F>(listener: TcpListener, service: Rc<S>)
where
    S: Fn(Request<hyper::body::Incoming>) -> F + 'static,
    F: Future<Output = Response<Full<Bytes>>> + 'static,
{
    loop {
        // A connection that failed before it was accepted is detected by its client.
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        // Without it responses are only slower.
        let _ = stream.set_nodelay(true);
        let service = Rc::clone(&service);
        tokio::task::spawn_local(async move {
            let answer = service_fn(move |request| {
                let answer = service(request);
                async move { Ok::<_, Infallible>(answer.await) }
            });
            let builder = auto::Builder::new(LocalExecutor);
            // As above.
            let _ = builder.serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}
