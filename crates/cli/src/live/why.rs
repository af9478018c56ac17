//! `maglor why`: explains a failed or slow request by what the proxies on its way have kept of it.

mod listed;
mod page;

use std::process::ExitCode;

use futures_util::stream::{self, StreamExt as _};
use maglor_telemetry::command_line::output;
use maglor_telemetry::story::{Collected, Filter, Page};

use super::LiveError;
use super::access::{Instance, Pods, Target, Where};
use super::table::{Format, formatted, serialized, show};

const EXAMPLES: &str = "\
Examples:
  Why did this request fail, or take so long?
    maglor why 7d1b0f5e-9f0c-4b7a-8a53-5f6f0a1f7d10
  What is kept of the last ten minutes
    maglor why --recent -A
  The slowest requests of a workload
    maglor why --recent --slowest --of deploy/cart
  Connections that clients of 10.1.0.9 could not open
    maglor why --recent --client 10.1.0.9
  Without Kubernetes
    maglor why --recent --proxy 127.0.0.1:15020

Proxies keep failed requests and the slowest 1 % for ten minutes, unless `stories: false` is set. The identifier is
`x-request-id`, which the access log and `maglor tap -o wide` show, or that of a trace.";

/// How many proxies are asked at a time.
const AT_ONCE: usize = 16;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["id", "recent"]))]
pub(crate) struct Options {
    /// Identifier of the request (`x-request-id`), of its trace, or of a story in a list.
    #[arg(value_name = "REQUEST-ID")]
    id: Option<String>,

    /// List what is kept, newest first.
    #[arg(long)]
    recent: bool,

    /// Only proxies of this pod or workload.
    #[arg(long, value_name = "POD|WORKLOAD")]
    of: Option<Target>,

    /// Only requests of routes whose names contain this.
    #[arg(long, value_name = "PART", conflicts_with = "id")]
    route: Option<String>,

    /// Only requests to this cluster.
    #[arg(long, value_name = "NAME", conflicts_with = "id")]
    cluster: Option<String>,

    /// Only requests with this response flag, such as UF.
    #[arg(long, value_name = "FLAG", conflicts_with = "id")]
    flag: Option<String>,

    /// Only clients whose address or SPIFFE ID contains this.
    #[arg(long, value_name = "PART", conflicts_with = "id")]
    client: Option<String>,

    /// Only requests that did not fail, slowest first.
    #[arg(long, conflicts_with = "id")]
    slowest: bool,

    /// Maximum number of requests.
    #[arg(long, value_name = "N", default_value_t = 20, conflicts_with = "id", value_parser = clap::value_parser!(u16).range(1..))]
    limit: u16,

    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,

    #[command(flatten)]
    pods: Pods,

    #[command(flatten)]
    place: Where,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    super::run(async {
        let mut pods = options.pods.clone();
        // The proxies of a request may be in several namespaces.
        pods.all_namespaces |= options.id.is_some() && pods.namespace.is_none();
        let proxies = options.place.proxies(&pods, options.of.as_ref()).await?;
        let filter = filter(options);
        let found = ask(&proxies, &filter.path()).await?;
        match &options.id {
            Some(id) => one(id, found, options.output),
            None => {
                let listed = found.list(&filter);
                show(&listed, options.output, "nothing is kept that matches");
                Ok(())
            }
        }
    })
}

fn filter(options: &Options) -> Filter {
    Filter {
        id: options.id.clone(),
        route: options.route.clone(),
        cluster: options.cluster.clone(),
        flag: options.flag.clone(),
        client: options.client.clone(),
        slowest: options.slowest,
        limit: options.limit.into(),
    }
}

/// Returns the stories of all proxies. One that does not respond is reported, unless none does.
async fn ask(proxies: &[Instance], query: &str) -> Result<Collected, LiveError> {
    let pages = stream::iter(proxies).map(|proxy| async move {
        let page = proxy.admin.json::<Page>(query).await;
        (&proxy.name, page)
    });
    let pages: Vec<_> = pages.buffered(AT_ONCE).collect().await;
    let mut found = Collected::default();
    let (mut answered, mut failed) = (false, None);
    for (name, page) in pages {
        match page {
            Ok(page) => {
                answered = true;
                warn(name, &page);
                found.add(name, page.stories);
            }
            Err(error) => {
                if let Some(before) = failed.replace(error) {
                    eprintln!("maglor: {before}");
                }
            }
        }
    }
    match failed {
        Some(error) if !answered => Err(error),
        Some(error) => {
            eprintln!("maglor: {error}");
            Ok(found)
        }
        None => Ok(found),
    }
}

fn warn(name: &str, page: &Page) {
    if !page.on {
        eprintln!(
            "{name}: nothing is kept; remove `stories: false` from its configuration or the MeshConfig"
        );
    }
    if page.dropped > 0 {
        eprintln!("{name}: {} stories had no room", page.dropped);
    }
}

/// Prints one request.
fn one(id: &str, found: Collected, format: Format) -> Result<(), LiveError> {
    let Some(explained) = found.explained() else {
        return Err(LiveError::NoStory { id: id.to_owned() });
    };
    output::print(&match format {
        Format::Json | Format::Yaml => serialized(&explained, format),
        Format::Csv => formatted(&explained.listed(), format),
        Format::Table | Format::Wide => page::text(&explained, format),
    });
    Ok(())
}
