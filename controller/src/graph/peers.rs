//! Serves the reports of a replica's own proxies to other replicas.
//!
//! Only replicas get a response: they authenticate with the controller's own identity on the xDS port. In plain text,
//! neither clients nor replicas are authenticated.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use maglor_identity::SpiffeId;
use tokio::io::{AsyncRead, AsyncWrite};

use super::{Graphs, page};
use crate::identity::start::Service;
use crate::query::Query;
use crate::resource_server::Table;

/// Timeout for a request head. A replica sends one request per connection.
const HEAD: Duration = Duration::from_secs(10);

/// The server for other replicas. Clones share the same state.
#[derive(Clone, Debug)]
pub(crate) struct Peers {
    pub(crate) graphs: Arc<Graphs>,
    pub(crate) table: Table,
    /// The required identity of another replica; `None` in plain text.
    pub(crate) id: Option<SpiffeId>,
}

impl Peers {
    /// Creates a server of this replica's data. `service` is `None` in plain text.
    pub(crate) fn new(graphs: &Arc<Graphs>, table: &Table, service: Option<&Service>) -> Self {
        Self {
            graphs: Arc::clone(graphs),
            table: table.clone(),
            id: service.map(|service| service.id.clone()),
        }
    }

    /// Serves one connection of a client with this authenticated identity.
    pub(crate) async fn serve<Io>(self, io: Io, identity: Option<&SpiffeId>)
    where
        Io: AsyncRead + AsyncWrite + Unpin,
    {
        let known = self.id.is_none() || self.id.as_ref() == identity;
        let service = service_fn(|request: Request<_>| {
            let response = match known {
                true => self.answer(&request),
                false => page::text(
                    StatusCode::FORBIDDEN,
                    "only controller replicas may use this endpoint\n".to_owned(),
                ),
            };
            async move { Ok::<_, Infallible>(response) }
        });
        let served = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD)
            .serve_connection(TokioIo::new(io), service);
        if let Err(error) = served.await {
            tracing::debug!(%error, "connection from a replica failed");
        }
    }

    fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        if request.method() != Method::GET {
            return page::text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n".to_owned());
        }
        match request.uri().path() {
            "/graph" => page::graph(&self.graphs, &Query::of(request.uri().query())),
            "/shared" => page::shared(&self.table),
            _ => page::text(StatusCode::NOT_FOUND, "no such page\n".to_owned()),
        }
    }
}
