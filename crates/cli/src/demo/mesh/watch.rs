//! A watchdog that stops the proxies if the demo itself was killed.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

/// It receives a line for each process that starts (`+`) and ends (`-`). If its input ends, the
/// demo has died: then the remaining processes are killed, and their files removed.
const SCRIPT: &str = r#"
running=
while read -r sign process; do
    others=
    for one in $running; do
        [ "$one" = "$process" ] || others="$others $one"
    done
    running=$others
    [ "$sign" = - ] || running="$running $process"
done
[ -z "$running" ] || kill -KILL $running
rm -rf -- "$FOLDER"
"#;

/// A shell that outlives the demo. Without a shell, a killed demo leaves its proxies.
#[derive(Debug)]
pub(super) struct Watch {
    shell: Option<Child>,
    /// The pipe that is closed with the demo, however it ends.
    stop: Option<ChildStdin>,
}

impl Watch {
    /// Starts a watchdog for the processes in the folder.
    pub(super) fn over(folder: &Path) -> Self {
        let shell = Command::new("/bin/sh")
            .args(["-c", SCRIPT])
            .env("FOLDER", folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C is handled by the demo.
            .process_group(0)
            .spawn();
        let mut shell = shell.ok();
        let stop = shell.as_mut().and_then(|shell| shell.stdin.take());
        Self { shell, stop }
    }

    pub(super) fn begins(&self, process: u32) {
        self.note('+', process);
    }

    pub(super) fn ends(&self, process: u32) {
        self.note('-', process);
    }

    fn note(&self, sign: char, process: u32) {
        if let Some(mut stop) = self.stop.as_ref() {
            // If the watchdog was killed, the demo continues without it.
            let _ = stop.write_all(format!("{sign} {process}\n").as_bytes());
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(mut shell) = self.shell.take() {
            let _ = shell.wait();
        }
    }
}
