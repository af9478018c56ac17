//! Options common to all commands that run the proxy, and the steps after a configuration is loaded.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::{fmt, io};

use clap::Args;
use maglor_config::raw::{NotationError, Size};
use maglor_config::{Config, Errors, Loaded};
use maglor_proxy::{Options, RunError};
use maglor_telemetry::logs::{self, Format};

use super::failure;

/// Options of the commands that run the proxy.
#[derive(Args, Debug)]
pub(super) struct RunningArgs {
    /// Memory budget, such as 32MiB; overrides the configuration. Above it, requests are rejected
    /// with 503.
    #[arg(long, value_name = "SIZE", value_parser = memory_budget)]
    pub(super) memory_budget: Option<u64>,

    /// Validate the configuration, print its errors and exit: status 2 if it is invalid, status 1 if the
    /// proxy could not start with it on this machine (for example, unreadable files or ports in use).
    #[arg(long)]
    check: bool,

    /// With --check: validate for a reload, so the ports of the running proxy may be in use.
    #[arg(long, requires = "check")]
    reload: bool,

    /// Print the configuration as YAML and exit.
    #[arg(long)]
    print_config: bool,

    /// Format of the proxy's own log on standard error.
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = ["text", "json"])]
    log_format: String,

    /// Level of the proxy's own log; overrides the configuration: error, warn, info, debug, trace,
    /// or target=level,...
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,

    /// Write the bound addresses to this file (JSON) once the proxy accepts connections.
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
}

fn memory_budget(text: &str) -> Result<u64, String> {
    let size: Size = text
        .parse()
        .map_err(|error: NotationError| error.to_string())?;
    let range = Config::LEAST_MEMORY_BUDGET..=Config::MOST_MEMORY_BUDGET;
    if range.contains(&size.0) {
        return Ok(size.0);
    }
    let (least, most) = (Size(*range.start()), Size(*range.end()));
    Err(format!("{size} is not in the range {least} to {most}"))
}

impl RunningArgs {
    /// Prints or checks the configuration, or runs a proxy with it. `file` is the configuration's source, which is
    /// watched for changes.
    pub(super) fn run(self, loaded: Result<Loaded, Errors>, file: Option<PathBuf>) -> ExitCode {
        let loaded = match loaded {
            Ok(loaded) => loaded,
            Err(errors) => {
                print_message(&errors);
                return ExitCode::from(2);
            }
        };
        for warning in &loaded.warnings {
            print_message(warning);
        }
        let level = self.level(&loaded.config);
        if let Err(error) = logs::subscriber(&level, Format::Text, io::sink) {
            print_message(&format_args!("--log-level: error: {error}"));
            print_message(
                &"  = help: write error, warn, info, debug or trace, or a level for each part: `info,maglor_proxy=debug`",
            );
            return ExitCode::from(2);
        }
        if self.print_config {
            return print(&loaded.yaml);
        }
        if self.check {
            return self.check_start(&loaded.config, file);
        }
        self.serve(loaded, file)
    }

    fn check_start(&self, config: &Config, file: Option<PathBuf>) -> ExitCode {
        let mut unusable = maglor_proxy::unusable_files(config);
        if !self.reload {
            unusable.extend(maglor_proxy::unusable_addresses(config));
        }
        let mut errors: Vec<RunError> = unusable.into_iter().map(RunError::from).collect();
        errors.extend(maglor_proxy::unusable_log(config));
        errors.extend(self.unusable_ready_file());
        for error in &errors {
            print_message(&failure::format(error, file.as_deref()));
        }
        if !errors.is_empty() {
            return ExitCode::FAILURE;
        }
        let place = file.map_or_else(|| "flags".into(), |file| file.display().to_string());
        print(&format!("{place}: configuration is valid\n"))
    }

    /// Returns an error if the directory of the ready file does not exist.
    fn unusable_ready_file(&self) -> Option<RunError> {
        let path = self.ready_file.as_ref()?;
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())?;
        let source = std::fs::metadata(folder).err()?;
        let path = path.clone();
        Some(RunError::ReadyFile { path, source })
    }

    /// Returns the log level: that of the flag if set, otherwise that of the configuration.
    fn level(&self, config: &Config) -> String {
        let flag = self.log_level.clone();
        flag.unwrap_or_else(|| config.log_level.to_string())
    }

    fn serve(self, loaded: Loaded, file: Option<PathBuf>) -> ExitCode {
        let level = self.level(&loaded.config);
        let format = if self.log_format == "json" {
            Format::Json
        } else {
            Format::Text
        };
        let log = match logs::init(&level, format) {
            Ok(log) => log,
            Err(error) => {
                print_message(&format_args!("--log-level: error: {error}"));
                return ExitCode::from(2);
            }
        };
        let options = Options {
            file,
            ready_file: self.ready_file,
            memory_budget: self.memory_budget,
            log: Some(log),
        };
        let file = options.file.clone();
        match maglor_proxy::run(loaded, options, std::future::pending()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                print_message(&failure::format(&error, file.as_deref()));
                ExitCode::FAILURE
            }
        }
    }
}

/// Prints a message on standard error. A closed reader is ignored (`maglor-proxy --check … 2>&1 | head`).
fn print_message(what: &dyn fmt::Display) {
    let _ = writeln!(io::stderr(), "{what}");
}

/// Prints requested output. A closed reader is not an error, but a full disk is.
fn print(text: &str) -> ExitCode {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            print_message(&format_args!("maglor-proxy: standard output: {error}"));
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}
