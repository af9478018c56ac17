//! Accessibility, judged by axe-core. The package is fetched into the cache once, by `npm pack`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use maglor_testkit::browser::Device;
use serde_json::{Value, json};

use crate::fixture::Fixture;
use crate::{DESKTOP, PHONE, VIEWS, open};

const VERSION: &str = "4.14.1";

/// Returns the script, or the reason why it is not available.
fn script() -> Result<String, String> {
    let cache = match env::var_os("XDG_CACHE_HOME") {
        Some(cache) => PathBuf::from(cache),
        None => Path::new(&env::var_os("HOME").ok_or("HOME is not set")?).join(".cache"),
    };
    let folder = cache.join("maglor").join(format!("axe-core-{VERSION}"));
    let file = folder.join("package/axe.min.js");
    if !file.is_file() {
        fetch(&folder)?;
    }
    fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))
}

fn fetch(folder: &Path) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    // Each process unpacks for itself, so that the file that others read is complete when it appears.
    let own = tempfile::tempdir_in(folder).map_err(|error| error.to_string())?;
    let package = format!("axe-core@{VERSION}");
    let archive = own.path().join(format!("axe-core-{VERSION}.tgz"));
    run(Command::new("npm")
        .args(["pack", "--silent", &package])
        .current_dir(own.path()))?;
    run(Command::new("tar")
        .arg("-xzf")
        .arg(archive)
        .current_dir(own.path()))?;
    match fs::rename(own.path().join("package"), folder.join("package")) {
        Err(error) if !folder.join("package").is_dir() => Err(error.to_string()),
        _ => Ok(()),
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "{program}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
    }
}

/// Describes the serious and critical findings, each with its elements.
const FINDINGS: &str = "axe.run(document, { resultTypes: ['violations'] }).then(({ violations }) => violations
    .filter(({ impact }) => impact === 'serious' || impact === 'critical')
    .map(({ id, help, nodes }) => ({ id, help, nodes: nodes.slice(0, 3).map(({ html, failureSummary }) => ({ html, failureSummary })) })))";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn axe_finds_nothing_serious_in_light_and_dark() {
    let script = match script() {
        Ok(script) => script,
        Err(reason) => {
            eprintln!("skipped: axe-core {VERSION} is not available: {reason}");
            return;
        }
    };
    let Some(fixture) = Fixture::start(12, 18).await else {
        return;
    };
    fixture.has_history(10).await;
    let devices = [
        DESKTOP,
        Device {
            dark: true,
            ..DESKTOP
        },
        PHONE,
    ];
    for device in devices {
        let page = fixture.page(device).await;
        for view in VIEWS.into_iter().chain(["#/?select=shop/cart"]) {
            open(&page, &fixture, view).await;
            page.evaluate(&script).await;
            let findings = page.evaluate(FINDINGS).await;
            assert_eq!(findings, json!([]), "{view} {device:?}: {findings:#}");
        }
        // The dialog, which is the same in all views.
        page.press("?").await;
        page.eventually("document.querySelector('dialog[open]')")
            .await;
        let findings: Value = page.evaluate(FINDINGS).await;
        assert_eq!(findings, json!([]), "keys {device:?}: {findings:#}");
        page.close().await;
    }
}
