//! `maglor identity show`: prints certificates in readable form.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use maglor_config::raw::TimeSpan;
use maglor_identity::x509::{self, Certificate};
use maglor_telemetry::command_line::output;

use super::Error;
use super::folder::{in_file, read};

#[derive(Debug, clap::Args)]
pub(super) struct Options {
    /// PEM files with certificates.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

pub(super) fn run(options: &Options) -> Result<(), Error> {
    for path in &options.files {
        output::print(&file(path, SystemTime::now())?);
    }
    Ok(())
}

fn file(path: &Path, now: SystemTime) -> Result<String, Error> {
    let certificates = x509::read_pem(&read(path)?).map_err(in_file(path))?;
    let mut text = format!("{}\n", path.display());
    for (i, certificate) in certificates.iter().enumerate() {
        describe(&mut text, i + 1, certificate, now);
    }
    Ok(text)
}

fn describe(text: &mut String, position: usize, certificate: &Certificate, now: SystemTime) {
    let who = match certificate.workload() {
        Ok(id) => format!("workload {id}"),
        Err(_) if certificate.is_ca => match certificate.uris.first() {
            Some(uri) => format!("authority {uri}"),
            None => "authority".to_owned(),
        },
        Err(error) => format!("not a workload certificate: {error}"),
    };
    let serial: String = certificate.serial.iter().map(hex).collect();
    let (begins, expires) = (certificate.begins(), certificate.expires());
    // Writing to a string does not fail.
    let _ = writeln!(text, "  {position}. {who}");
    let _ = writeln!(
        text,
        "     valid   {} to {}, {}",
        date(begins),
        date(expires),
        left(certificate, now)
    );
    let _ = writeln!(text, "     serial  {serial}");
    let names = certificate
        .dns_names
        .iter()
        .map(|name| format!("DNS {name}"));
    let addresses = certificate
        .addresses
        .iter()
        .map(|address| format!("IP {address}"));
    let others: Vec<_> = names.chain(addresses).collect();
    if !others.is_empty() {
        let _ = writeln!(text, "     also    {}", others.join(", "));
    }
}

/// Formats the remaining validity.
fn left(certificate: &Certificate, now: SystemTime) -> String {
    if now < certificate.begins() {
        return "NOT YET VALID".to_owned();
    }
    match certificate.expires().duration_since(now) {
        Ok(left) => format!("{} left", TimeSpan(minutes(left))),
        Err(_) => "EXPIRED".to_owned(),
    }
}

/// Removes seconds from a duration of at least a day.
fn minutes(time: Duration) -> Duration {
    match time.as_secs() {
        seconds @ 3600.. => Duration::from_secs(seconds / 60 * 60),
        seconds => Duration::from_secs(seconds),
    }
}

fn hex(byte: &u8) -> String {
    format!("{byte:02x}")
}

/// Formats a point in time in RFC 3339 format, in UTC.
pub(super) fn date(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string()
}
