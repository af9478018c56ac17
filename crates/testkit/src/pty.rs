//! A pseudo-terminal, in which a program behaves as in front of a user.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, PoisonError};
use std::{ffi, thread};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::{TIMEOUT, eventually, process};

/// See the module's documentation.
#[derive(Debug)]
pub struct Terminal {
    keyboard: File,
    /// The end of the program. As long as it is open, its output can be read.
    program: File,
    output: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    /// Opens a terminal of this size.
    ///
    /// # Panics
    ///
    /// If the system has no pseudo-terminals.
    #[must_use]
    pub fn open(columns: u16, rows: u16) -> Self {
        let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&keyboard).unwrap();
        unlockpt(&keyboard).unwrap();
        let name = ptsname(&keyboard, Vec::new()).unwrap();
        let size = Winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&keyboard, size).unwrap();
        let program = OpenOptions::new()
            .read(true)
            .write(true)
            // It is not the terminal of the test.
            .custom_flags(libc::O_NOCTTY)
            .open(Path::new(ffi::OsStr::from_bytes(name.as_bytes())))
            .unwrap();
        let keyboard = File::from(keyboard);
        let (mut screen, output) = (keyboard.try_clone().unwrap(), Arc::default());
        let read: Arc<Mutex<Vec<u8>>> = Arc::clone(&output);
        // It ends with an error of the system when the program's end is closed.
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = screen.read(&mut bytes) {
                let mut read = read.lock().unwrap_or_else(PoisonError::into_inner);
                read.extend(&bytes[..count]);
            }
        });
        Self {
            keyboard,
            program,
            output,
        }
    }

    /// Starts a program in it.
    ///
    /// # Panics
    ///
    /// If there is no such program.
    #[must_use]
    pub fn spawn(&self, mut command: Command) -> Child {
        let end = || self.program.try_clone().unwrap();
        command.stdin(end()).stdout(end()).stderr(end());
        process::spawn(command).unwrap()
    }

    /// Types a text.
    ///
    /// # Panics
    ///
    /// If the terminal is gone.
    pub fn send(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Returns all bytes that were written to it.
    #[must_use]
    pub fn output(&self) -> String {
        let output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&output).into_owned()
    }

    /// Waits until a text was written to it.
    ///
    /// # Panics
    ///
    /// If it is not within [`TIMEOUT`].
    #[track_caller]
    pub fn expect(&self, text: &str) {
        eventually(TIMEOUT, &format!("{text:?} on the terminal"), || {
            self.output().contains(text)
        });
    }

    /// Returns whether keys are passed on one by one and not shown, as full-screen programs need them, instead of
    /// line by line.
    ///
    /// # Panics
    ///
    /// If the terminal is gone.
    #[must_use]
    pub fn is_raw(&self) -> bool {
        let modes = tcgetattr(&self.program).unwrap().local_modes;
        !modes.intersects(LocalModes::ICANON | LocalModes::ECHO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_has_a_terminal() {
        let mut terminal = Terminal::open(70, 20);
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "test -t 0 && test -t 1 && read key && echo \"got $key\"",
        ]);
        let mut child = terminal.spawn(command);
        assert!(!terminal.is_raw());
        terminal.send("a\n");
        terminal.expect("got a\r\n");
        assert!(child.wait().unwrap().success());
    }
}
