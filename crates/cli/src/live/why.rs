//! `maglor why`: explains a failed or slow request by what the proxies on its way have kept of it.

mod listed;
mod page;

use std::process::ExitCode;

use futures_util::stream::{self, StreamExt as _};
use maglor_telemetry::story::{Story, explain, explain_all};
use maglor_terminal::output;
use serde::{Deserialize, Serialize};

use self::listed::Listed;
use super::LiveError;
use super::access::{Instance, Pods, Target, Where};
use super::table::{Format, formatted, serialized, show};
use super::tap::escaped;

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

/// The page of a proxy.
#[derive(Debug, Deserialize)]
struct Page {
    on: bool,
    #[serde(default)]
    dropped: u64,
    stories: Vec<Story>,
}

/// An explained request, as JSON and YAML.
#[derive(Debug, Serialize)]
struct Explained<'a> {
    cause: &'static str,
    sentence: &'a str,
    stories: &'a [Story],
}

pub(crate) fn run(options: &Options) -> ExitCode {
    super::run(async {
        let mut pods = options.pods.clone();
        // The proxies of a request may be in several namespaces.
        pods.all_namespaces |= options.id.is_some() && pods.namespace.is_none();
        let proxies = options.place.proxies(&pods, options.of.as_ref()).await?;
        let mut found = ask(&proxies, &query(options)).await?;
        match &options.id {
            Some(id) => one(id, &mut found, options.output),
            None => {
                list(found, options);
                Ok(())
            }
        }
    })
}

/// Returns the path of the admin page with the filters.
fn query(options: &Options) -> String {
    let mut query = match &options.id {
        Some(_) => "/why?limit=100".to_owned(),
        None => format!("/why?limit={}", options.limit),
    };
    let filters = [
        ("id", &options.id),
        ("route", &options.route),
        ("cluster", &options.cluster),
        ("flag", &options.flag),
        ("client", &options.client),
    ];
    for (name, value) in filters {
        if let Some(value) = value {
            query.push_str(&format!("&{name}={}", escaped(value)));
        }
    }
    if options.slowest {
        query.push_str("&slowest=true");
    }
    query
}

/// Returns the stories of all proxies. One that does not respond is reported, unless none does.
async fn ask(proxies: &[Instance], query: &str) -> Result<Vec<Story>, LiveError> {
    let pages = stream::iter(proxies).map(|proxy| async move {
        let page = proxy.admin.json::<Page>(query).await;
        (&proxy.name, page)
    });
    let pages: Vec<_> = pages.buffered(AT_ONCE).collect().await;
    let mut found = Vec::new();
    let (mut answered, mut failed) = (false, None);
    for (name, page) in pages {
        match page {
            Ok(page) => {
                answered = true;
                warn(name, &page);
                found.extend(page.stories.into_iter().map(|story| Story {
                    proxy: Some(name.clone()),
                    ..story
                }));
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
fn one(id: &str, found: &mut [Story], format: Format) -> Result<(), LiveError> {
    let Some(cause) = explain_all(found) else {
        return Err(LiveError::NoStory { id: id.to_owned() });
    };
    output::print(&match format {
        Format::Json | Format::Yaml => {
            let explained = Explained {
                cause: cause.kind.name(),
                sentence: &cause.sentence,
                stories: found,
            };
            serialized(&explained, format)
        }
        Format::Csv => formatted(&rows(found.to_vec()), format),
        Format::Table | Format::Wide => page::text(&cause.sentence, found, format),
    });
    Ok(())
}

/// Prints a list of requests.
fn list(mut found: Vec<Story>, options: &Options) {
    match options.slowest {
        true => found.sort_by(|a, b| b.times.total_ms.total_cmp(&a.times.total_ms)),
        false => found.sort_by(|a, b| b.time.cmp(&a.time)),
    }
    found.truncate(options.limit.into());
    show(&rows(found), options.output, "nothing is kept that matches");
}

fn rows(stories: Vec<Story>) -> Vec<Listed> {
    let explained = stories.into_iter().map(|story| {
        let cause = explain(&story);
        Listed {
            cause: cause.kind.name(),
            sentence: cause.sentence,
            story,
        }
    });
    explained.collect()
}
