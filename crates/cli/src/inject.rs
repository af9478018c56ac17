//! `maglor inject`: adds sidecars to pod manifests, as the webhook does.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use maglor_manifests::inject::manifest::{self, ManifestError};
use maglor_manifests::inject::{Form, Redirect, Settings, SettingsError};
use maglor_telemetry::command_line::output;

use crate::input::read_text;

pub(crate) const EXAMPLES: &str = "\
Examples:
  Inject sidecars into a Deployment:
    maglor inject -f deployment.yaml | kubectl apply -f -
  Inject a plain-container sidecar into a running Deployment:
    kubectl get deployment web -o yaml | maglor inject -f - --sidecar container | kubectl apply -f -
  Use another image:
    maglor inject -f all.yaml --image registry.example/maglor-proxy:1.2

Pods with a sidecar, with injection disabled (maglor.dev/inject: disabled) or in the node's network are not
changed; a line on standard error reports them. Annotations and output: docs/injection.md.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// Manifests (YAML or JSON) of any kind; `-` is standard input. May be repeated.
    #[arg(short, long = "filename", value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Sidecar settings (YAML): image, controlPlane, cpuRequest, …, as in `sidecar` of the chart's values.
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
    /// Image of maglor-proxy.
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// Address of the controller.
    #[arg(long, value_name = "ADDR")]
    control_plane: Option<String>,
    /// Form of the sidecar container.
    #[arg(long, value_name = "FORM", value_enum)]
    sidecar: Option<Sidecar>,
    /// Do not redirect traffic: no init container, no privileges; the application gets the HTTP proxy environment
    /// variables.
    #[arg(long)]
    no_redirect: bool,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Sidecar {
    /// A native sidecar: an init container with `restartPolicy: Always` (Kubernetes 1.29).
    Native,
    /// A plain container, for older Kubernetes versions.
    Container,
}

#[derive(Debug, thiserror::Error)]
enum InjectError {
    #[error("{file}: {source}")]
    Read { file: String, source: io::Error },
    #[error("{file}: {source}")]
    Manifest { file: String, source: ManifestError },
    #[error("{0}")]
    Settings(#[from] SettingsError),
}

/// Prints all documents, with sidecars added.
pub(crate) fn run(options: &Options) -> ExitCode {
    match inject(options) {
        Ok(text) => {
            output::print(&text);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("maglor inject: {error}");
            ExitCode::FAILURE
        }
    }
}

fn inject(options: &Options) -> Result<String, InjectError> {
    let settings = settings(options)?;
    let mut texts = Vec::new();
    for file in &options.files {
        let text = read(file)?;
        let done = manifest::inject_all(&text, &settings);
        let done = done.map_err(|source| InjectError::Manifest {
            file: file.display().to_string(),
            source,
        })?;
        for line in &done.report {
            eprintln!("{line}");
        }
        texts.push(done.text);
    }
    texts.retain(|text| !text.is_empty());
    Ok(texts.join("---\n"))
}

fn settings(options: &Options) -> Result<Settings, InjectError> {
    let text = options.settings.as_deref().map(read).transpose()?;
    let mut settings = Settings::parse(text.as_deref().unwrap_or_default())?;
    if let Some(image) = &options.image {
        settings.image.clone_from(image);
    }
    if let Some(address) = &options.control_plane {
        settings.control_plane.clone_from(address);
    }
    match options.sidecar {
        None => {}
        Some(Sidecar::Container) => settings.form = Form::Container,
        Some(Sidecar::Native) => settings.form = Form::Native,
    }
    if options.no_redirect {
        settings.redirect = Redirect::None;
    }
    settings.check()?;
    Ok(settings)
}

fn read(file: &Path) -> Result<String, InjectError> {
    read_text(file).map_err(|source| InjectError::Read {
        file: file.display().to_string(),
        source,
    })
}
