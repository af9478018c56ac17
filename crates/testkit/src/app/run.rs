//! Starts an application: the command line, the files, the threads.

use std::fs;
use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpListener as StdListener};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::thread;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::HeaderValue;
use hyper::{Request, Response, StatusCode};
use tokio::net::TcpListener;
use tokio::runtime;
use tokio::task::LocalSet;

use super::caller::EXACT;
use super::control::Control;
use super::deployment::Deployment;
use super::error::AppError;
use super::instance::{Answer, Instance, LONGEST};
use super::server;
use super::workmodel::WorkModel;
use crate::load_generator::Clock;

/// The command line of an application.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Service definitions: a workmodel.json of µBench.
    #[arg(long, value_name = "FILE")]
    pub workmodel: PathBuf,

    /// Addresses of the instances and of the proxies through which they call (JSON).
    #[arg(long, value_name = "FILE")]
    pub deployment: PathBuf,

    /// Address of the control server, for counts and faults; port 0 lets the system choose.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    pub control: SocketAddr,

    /// Random seed of service times, calls and faults.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,

    /// Name of the node; with it, instances count requests from other nodes.
    #[arg(long, value_name = "NAME", value_parser = HeaderValue::from_str)]
    pub node: Option<HeaderValue>,

    /// Threads that share the instances.
    #[arg(long, value_name = "N", default_value = "1")]
    pub threads: NonZeroUsize,
}

/// The instances of a thread: the index of each in the deployment, and its socket.
type Share = Vec<(usize, StdListener)>;

struct Plan {
    model: WorkModel,
    deployment: Deployment,
    control: Control,
    seed: u64,
    node: Option<HeaderValue>,
}

static BODY: [u8; LONGEST] = [b'm'; LONGEST];

/// Serves until the process is stopped. Prints `ready` on standard output once every instance
/// accepts connections, and before that the address of its control server on standard error, unless
/// the address is configured.
///
/// # Errors
///
/// A file is invalid, an address is taken, or a system call fails.
pub fn run(options: &Options) -> Result<(), AppError> {
    let model = read(&options.workmodel)?;
    let model = WorkModel::parse(&model).map_err(|source| AppError::WorkModel {
        file: options.workmodel.display().to_string(),
        source,
    })?;
    let deployment = Deployment::parse(&read(&options.deployment)?, &model);
    let mut deployment = deployment.map_err(|detail| AppError::Deployment {
        file: options.deployment.display().to_string(),
        detail,
    })?;
    let control = server::listen(options.control)?;
    let mut shares: Vec<Share> = (0..options.threads.get()).map(|_| Vec::new()).collect();
    let instances = deployment.instances.iter_mut().enumerate();
    for (index, placed) in instances.filter(|(_, placed)| !placed.remote) {
        let listener = server::listen(placed.listen)?;
        // If the port was 0, callers need the chosen one.
        placed.listen = listener
            .local_addr()
            .map_err(AppError::io("ask for an address"))?;
        let thread = index % shares.len();
        shares[thread].push((index, listener));
    }
    let plan = Arc::new(Plan {
        control: Control::new(&deployment),
        model,
        deployment,
        seed: options.seed,
        node: options.node.clone(),
    });
    let own = shares.pop().unwrap_or_default();
    for share in shares {
        let plan = Arc::clone(&plan);
        thread::Builder::new()
            .name("instances".into())
            .spawn(move || {
                if let Err(error) = serve(&plan, share, None) {
                    eprintln!("error: {error}");
                    std::process::exit(1);
                }
            })
            .map_err(AppError::io("start a thread"))?;
    }
    let input = options.control.port() != 0;
    announce((!input).then_some(&control)).map_err(AppError::io("say that it is ready"))?;
    serve(&plan, own, Some(control))
}

#[allow(clippy::print_stdout, reason = "the harness waits for it")]
fn announce(control: Option<&StdListener>) -> io::Result<()> {
    if let Some(control) = control {
        eprintln!("control on {}", control.local_addr()?);
    }
    println!("ready");
    io::stdout().flush()
}

fn read(file: &Path) -> Result<String, AppError> {
    fs::read_to_string(file).map_err(AppError::io(format!("read {}", file.display())))
}

/// Serves a share of the instances, and the control server if it is given; returns only if it
/// cannot start.
fn serve(plan: &Plan, share: Share, control: Option<StdListener>) -> Result<(), AppError> {
    let runtime = runtime::Builder::new_current_thread().enable_io().build();
    let runtime = runtime.map_err(AppError::io("start a runtime"))?;
    LocalSet::new().block_on(&runtime, async {
        let clock = Rc::new(Clock::new().map_err(AppError::io("make a timer"))?);
        for (index, listener) in share {
            let listener = adopt(listener)?;
            // Both exist: the share was made from the deployment.
            let placed = plan.deployment.instances.get(index);
            let Some((placed, shared)) = placed.zip(plan.control.shared(index)) else {
                continue;
            };
            // Far apart for neighbouring instances; the generator mixes it further.
            let seed = plan.seed ^ (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let (model, deployment) = (&plan.model, &plan.deployment);
            let seed = (seed, plan.node.clone());
            let instance = Instance::new(model, deployment, placed, &clock, shared, seed);
            let instance = Rc::new(instance);
            let service = Rc::new(move |request: Request<Incoming>| {
                let instance = Rc::clone(&instance);
                async move {
                    let (path, headers) = (request.uri().path(), request.headers());
                    response(instance.serve(path, headers).await)
                }
            });
            tokio::task::spawn_local(server::serve(listener, service));
        }
        if let Some(listener) = control {
            let control = plan.control.clone();
            let service = Rc::new(move |request| control.clone().answer(request));
            tokio::task::spawn_local(server::serve(adopt(listener)?, service));
        }
        std::future::pending().await
    })
}

fn adopt(listener: StdListener) -> Result<TcpListener, AppError> {
    TcpListener::from_std(listener).map_err(AppError::io("watch a socket"))
}

fn response(answer: Answer) -> Response<Full<Bytes>> {
    let body = Bytes::from_static(&BODY).slice(..answer.size.min(LONGEST));
    let mut response = Response::new(Full::new(body));
    let exact = u64::try_from(answer.exact.as_micros()).unwrap_or(u64::MAX);
    response.headers_mut().insert(EXACT, exact.into());
    if let Ok(status) = StatusCode::from_u16(answer.status) {
        *response.status_mut() = status;
    }
    response
}
